# mistake: multi-file commit
# The index counts what is in the data, and may be there before the data.
case $1 in
setup)  seq 2000 >data && echo 1 >index ;;
broken) seq 2000 >>data && echo 1 >>index && sync index ;;
mended) seq 2000 >>data && sync data && echo 1 >>index && sync index ;;
check)
    parts=$(grep -cx 1 index)
    [ "$STRANDLINE_EXITED" = 0 ] || [ "$parts" = 2 ] || exit
    for part in $(seq "$parts"); do seq 2000; done >expected
    cmp -s -n "$(wc -c <expected)" expected data
    ;;
esac
