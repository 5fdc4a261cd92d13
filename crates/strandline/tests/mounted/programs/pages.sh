# mistake: overwrite in place
# Three pages belong together; all are old, or all are new.
pages() { yes "$1" | head -c 12288; }
case $1 in
setup)  pages old >table ;;
broken) pages new | dd of=table bs=12288 iflag=fullblock conv=notrunc,fsync status=none ;;
mended) pages new >table.new && sync table.new && mv table.new table && sync . ;;
check)
    pages new | cmp -s - table && exit
    [ "$STRANDLINE_EXITED" = 0 ] && pages old | cmp -s - table
    ;;
esac
