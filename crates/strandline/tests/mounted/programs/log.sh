# mistake: append without length
# A log of records, of which the last may be there in part: its reader must notice.
payload() { printf '%06000d' "$1"; }
sum() { printf %s "$1" | cksum | cut -d ' ' -f 1; }
case $1 in
setup)  : >log ;;
broken) for n in 1 2 3; do
        echo "$(payload $n) end" >>log && sync log || exit
        echo "appended $n"
    done ;;
mended) for n in 1 2 3; do
        p=$(payload $n) && echo "$p $(sum "$p")" >>log && sync log || exit
        echo "appended $n"
    done ;;
check)
    text() { tr '\0' '?' <log; }
    if [ "$2" = broken ]; then
        # Every record counts.
        records=$(text | grep -c .)
        good=$(text | grep -cE '^[0-9]{6000} end$')
        [ "$good" = "$records" ] || exit
    else
        # Those up to the first whose sum is wrong.
        good=$(text | while read -r p s; do
            [ "$s" = "$(sum "$p")" ] || break
            echo
        done | wc -l)
    fi
    [ "$good" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ]
    ;;
esac
