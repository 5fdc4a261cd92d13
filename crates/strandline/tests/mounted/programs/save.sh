# mistake: no fsync before rename
# A configuration is replaced by a new file.
case $1 in
setup)  seq 3000 >config ;;
broken) seq 4000 >new && mv new config && sync . ;;
mended) seq 4000 >new && sync new && mv new config && sync . ;;
check)
    seq 4000 | cmp -s - config && exit
    [ "$STRANDLINE_EXITED" = 0 ] && seq 3000 | cmp -s - config
    ;;
esac
