# A shell replaces a file: a new one is written, and moved over the old one.
# packages: coreutils
# limits: --max-states=2000
# row: mv | no sync | intact | yes: rename(2) orders nothing
# row: mv-sync | sync of the file | intact | yes: fsync(2)
# row: mv-sync-durable | sync of the file | durable | yes: fsync(2) wants the directory's as well
# row: mv-sync-both | sync of the file, then of the directory | durable | -
case $1 in
version) mv --version | sed -n '1s/.* //p' ;;
setup)  seq 2000 >f ;;
run)
    seq 3000 >f.tmp || exit
    [ "$2" = mv ] || sync f.tmp || exit
    mv f.tmp f || exit
    [ "$2" != mv-sync-both ] || sync . || exit
    echo "committed 1" ;;
check)
    seq 3000 | cmp -s - f && exit
    case $2 in *-durable|*-both) [ -z "$STRANDLINE_ACKNOWLEDGED" ] || exit 1 ;; esac
    seq 2000 | cmp - f ;;
esac
