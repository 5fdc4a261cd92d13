# mistake: directory not fsynced
# A page appears as a whole, and is there once the program has exited.
case $1 in
setup)  : >before ;;
broken) seq 4000 >new && sync new && mv new page ;;
mended) seq 4000 >new && sync new && mv new page && sync . ;;
check)
    seq 4000 | cmp -s - page && exit
    [ "$STRANDLINE_EXITED" = 0 ] && [ ! -e page ]
    ;;
esac
