# mistake: overwrite in place
# The shell's `>` empties the old file before the new one is there.
case $1 in
setup)  echo old >counter ;;
broken) echo new >counter && sync counter ;;
mended) echo new >counter.new && sync counter.new && mv counter.new counter && sync . ;;
check)
    grep -qx new counter && exit
    [ "$STRANDLINE_EXITED" = 0 ] && grep -qx old counter
    ;;
esac
