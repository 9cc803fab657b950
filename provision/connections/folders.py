"""Shell functions that enter a folder only by a way that no other user could change.

What `stat` says about the folders cannot be outdated: it is read from the root down, and nobody but root can
change what a trusted folder holds. In a sticky folder like /tmp others may add names, but not replace ours:
there a name counts only if root owns it.
"""

from __future__ import annotations

ENTER = r"""provision_no() {
printf 'refused: %s\n' "$1" >&2
exit 1
}
provision_members() {
[ "$1" != 0 ] || return 0
case $(ls -ld -- "$2") in ??????????+*) printf 'its access control list\n'; return 0 ;; esac
if command -v getent >/dev/null
then getent passwd || :; getent group || :
else cat /etc/passwd /etc/group
fi | PROVISION_GID=$1 PROVISION_UID=$provision_u awk -F: 'BEGIN { g = ENVIRON["PROVISION_GID"] }
NF == 7 { id[$1] = $3; if ($4 == g) m[$1] = 1 }
NF == 4 && $3 == g { n = split($4, a, ","); for (i = 1; i <= n; i++) if (a[i] != "") m[a[i]] = 1 }
END { for (k in m) if (id[k] != "0" && id[k] != ENVIRON["PROVISION_UID"]) { print "user " k; exit } }'
}
provision_way() {
provision_n=0
while :; do
set -- /
provision_x= provision_r=$provision_d/
while [ -n "$provision_r" ]; do
provision_s=${provision_r%%/*} provision_r=${provision_r#*/}
[ -z "$provision_s" ] || { provision_x=$provision_x/$provision_s; set -- "$@" "$provision_x"; }
done
provision_d=${provision_x:-/}
provision_s=$(stat -c '%u %g %a %f' -- "$@" 2>/dev/null) || :
provision_k= provision_w= provision_l=
while read -r provision_o provision_g provision_m provision_f; do
[ -n "$provision_o" ] || break
provision_w=$provision_o provision_q=$1
case $provision_o in 0|"$provision_u") provision_w= ;; esac
case $provision_f in
a*) [ -n "$provision_k" ] || provision_w=
[ -n "$provision_w" ] || provision_l=$1
break ;;
4*) ;;
*) provision_no "$1 is not a directory" ;;
esac
[ -z "$provision_w" ] || break
provision_k=
case $provision_m in
*[2367]) provision_w='every user' ;;
*[2367]?) provision_w=$(provision_members "$provision_g" "$1") ;;
esac
if [ -n "$provision_w" ]; then
case $provision_m in [1357]???) provision_k=1 provision_w= ;; *) break ;; esac
fi
shift
done <<END
$provision_s
END
[ -z "$provision_w" ] || return 0
[ -n "$provision_l" ] || break
[ "$provision_n" -lt 20 ] || provision_no "$p leads through too many symbolic links"
provision_n=$((provision_n + 1))
provision_x=${provision_d#"$provision_l"}
provision_s=$(readlink -- "$provision_l")
case $provision_s in
/*) provision_d=$provision_s$provision_x ;;
*) provision_d=${provision_l%/*}/$provision_s$provision_x ;;
esac
done
provision_gone=
if [ $# -gt 0 ]; then
[ "$provision_make" = 1 ] || { provision_gone=1; return 0; }
umask "${provision_umask:-022}"
for provision_f do mkdir -- "$provision_f"; done
umask 077
fi
cd -P -- "$provision_d"
[ "$provision_u" != 0 ] || [ -O . ] || provision_no "$provision_d belongs to another user"
}
"""
"""Defines `provision_way`, which enters "$provision_d" as the user number "$provision_u".

"$p" is the path in messages. `provision_make=1` makes missing folders (else `provision_gone` is set). Where
somebody else than root and that user may change the way, it enters nothing: `provision_w` says who (the
number of a folder's owner, or words), and `provision_q` where. `provision_k` is set for a sticky folder.
"""
