# vim changes a file and writes it. The files are below /tmp here, where vim makes no backup unless
# 'backupskip' is empty.
# packages: vim
# limits: --max-states=2000
# row: vim | defaults | intact | no: "'writebackup'" promises a backup until the write succeeded
# row: vim-durable | defaults | durable | no: "'fsync'" says nothing of directories
# row: vim-copy | backupcopy=yes | intact | no
# row: vim-nofsync | nofsync | intact | yes: "'fsync'"
case $1 in
version) vim --version | sed -n '1s/.*IMproved \([0-9.]*\) .*/\1/p' ;;
setup)  seq 2000 >f ;;
run)
    case $2 in
    vim-copy) option="set backupcopy=yes" ;;
    vim-nofsync) option="set nofsync" ;;
    *) option="set fsync" ;;
    esac
    vim -u DEFAULTS -i NONE -n -es -c 'set backupskip=' -c "$option" \
        -c '$put =range(2001,3000)' -c wq f </dev/null &&
        echo "committed 1" ;;
check)
    seq 3000 | cmp -s - f && exit
    case $2 in *-durable) [ -z "$STRANDLINE_ACKNOWLEDGED" ] || exit 1 ;; esac
    # What was there before may be in the backup file: its user finds it.
    seq 2000 | cmp -s - f || seq 2000 | cmp - f~ ;;
esac
