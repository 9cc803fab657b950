# The state of a machine of the site, one fact a line, told without the product. What differs between two
# machines that were made alike is left out: identities, keys, leases, clocks. Enabled units are links below /etc.
set -eu
export LC_ALL=C
cd /
places="etc usr/local root"
for place in var/lib/vz/snippets var/lib/provision; do [ ! -d "$place" ] || places="$places $place"; done
# The lab's copies of what the kernel shows are no files of the site.
lasting() {
  grep -v ' usr/local/lib/lab-proc/' |
  grep -vE ' etc/(machine-id|ssh/ssh_host_.*|resolv.conf|.updated|ssl/.*|ld.so.cache)( -> .*)?$' |
    grep -vE ' var/lib/provision/(lock.*|.*\.lock)$' || :
}
find $places -type f -printf 'file %m %u:%g %p\n' | lasting | sort
find $places -type l -printf 'link %p -> %l\n' | lasting | sort
find $places -type f -print0 | xargs -0 -r sha256sum | sed 's/^/content /' | lasting | sort
dpkg-query -W -f 'package ${Package} ${db:Status-Abbrev}\n'
for unit in ssh chrony dnsmasq systemd-timesyncd; do echo "unit $unit $(systemctl is-active "$unit" || :)"; done
for key in net.ipv4.ip_forward net.ipv4.tcp_keepalive_time net.ipv4.conf.all.rp_filter; do
  echo "sysctl $key $(sysctl -n "$key")"
done
echo "hostname $(cat /proc/sys/kernel/hostname)"
echo "swap $(tail -n +2 /proc/swaps | wc -l)"
for path in /var/lib/setup /var/lib/site-setup.done; do [ ! -e "$path" ] || echo "there $path"; done
