# mistake: fsync error ignored
# All fsyncs are there, but nobody looks at what they return.
case $1 in
setup)  seq 3000 >config ;;
broken) seq 4000 >new; sync new; mv new config; sync .; true ;;
mended) seq 4000 >new && sync new && mv new config && sync . ;;
check)
    seq 4000 | cmp -s - config && exit
    [ "$STRANDLINE_EXITED" = 0 ] && seq 3000 | cmp -s - config
    ;;
esac
