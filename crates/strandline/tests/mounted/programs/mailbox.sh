# mistake: directory not fsynced
# A new directory needs an fsync of the directory that it is in.
case $1 in
setup)  : >before ;;
broken) mkdir box && echo mail >box/1 && sync box/1 && sync box ;;
mended) mkdir box && echo mail >box/1 && sync box/1 && sync box && sync . ;;
check)  [ "$STRANDLINE_EXITED" = 0 ] || grep -qx mail box/1 ;;
esac
