# mistake: directory not fsynced
# A segment of a log gets its name, and what is appended to it is committed: etcd's issue 6368.
case $1 in
setup)  : >before ;;
broken|mended)
    : >wal.tmp && sync wal.tmp && mv wal.tmp wal || exit
    [ "$1" = broken ] || sync . || exit
    for n in 1 2 3; do
        echo $n >>wal && sync wal && echo "committed $n" || exit
    done ;;
check)
    there=$(tr '\0' '?' 2>/dev/null <wal | grep -cx '[0-9]')
    [ "${there:-0}" -ge "${STRANDLINE_ACKNOWLEDGED:-0}" ]
    ;;
esac
