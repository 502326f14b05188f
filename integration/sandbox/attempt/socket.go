//go:build linux

package attempt

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const netWait = 250 * time.Millisecond

func sockets() map[string]Func {
	m := map[string]Func{
		"socket: abstract":          func(t *Targets) (string, error) { return dial("unix", "@"+t.Abstract) },
		"socket: abstract datagram": func(t *Targets) (string, error) { return dial("unixgram", "@"+t.Datagram) },
		// Served by somebody outside in a granted folder, after the start.
		"socket: made later in the workspace": func(t *Targets) (string, error) {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for range 40 {
				if _, err := os.Lstat(t.Sockets["later"]); err == nil {
					break
				}
				<-tick.C
			}
			return dial("unix", t.Sockets["later"])
		},
		"socket: through root of PID 1": func(t *Targets) (string, error) {
			return dial("unix", "/proc/1/root"+t.Sockets["tmp"])
		},
	}
	for _, kind := range []string{"tmp", "home", "docker", "bus", "control", "parent"} {
		m["socket: "+kind] = func(t *Targets) (string, error) { return dial("unix", t.Sockets[kind]) }
	}
	return m
}

func dial(network, addr string) (string, error) {
	if addr == "" || addr == "@" {
		return "", errNothing
	}
	c, err := net.DialTimeout(network, addr, netWait)
	if err != nil {
		return "", err
	}
	return "connected to " + addr, c.Close()
}

// Spec: C-05.
func network() map[string]Func {
	m := map[string]Func{
		"net: udp":  func(t *Targets) (string, error) { return ask(t.UDP, []byte("ping")) },
		"net: dns":  lookup,
		"net: icmp": icmp,
		"net: vsock": func(*Targets) (string, error) {
			fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return "", fmt.Errorf("socket: %w", err)
			}
			defer unix.Close(fd)
			return "made a vsock socket", nil
		},
		"net: raw socket": func(*Targets) (string, error) {
			return makes(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		},
		"net: packet socket": func(*Targets) (string, error) { return makes(unix.AF_PACKET, unix.SOCK_RAW, 0) },
		"net: other families": func(*Targets) (string, error) {
			last := error(errNothing)
			for f := range 46 {
				switch f {
				case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_VSOCK:
					continue
				}
				for _, kind := range []int{unix.SOCK_RAW, unix.SOCK_SEQPACKET, unix.SOCK_DGRAM} {
					s, err := makes(f, kind, 0)
					if err == nil {
						return s, nil
					}
					last = err
				}
			}
			return "", last
		},
		"netlink: interfaces of the host": func(*Targets) (string, error) {
			l, err := net.Interfaces()
			if err != nil {
				return "", err
			}
			for _, i := range l {
				if i.Name != "lo" {
					return "sees " + i.Name, nil
				}
			}
			return "", errNothing
		},
		"netlink: routes of the host": func(*Targets) (string, error) {
			b, err := netlink(unix.NETLINK_ROUTE, unix.RTM_GETROUTE, 28)
			if err == nil && len(b) == 0 {
				err = errNothing
			}
			return did("RTM_GETROUTE outside lo", err)
		},
		"netlink: audit": func(*Targets) (string, error) {
			_, err := netlink(unix.NETLINK_AUDIT, 1000, 16) // AUDIT_GET
			return did("AUDIT_GET", err)
		},
		"netlink: uevents": func(*Targets) (string, error) {
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
			if err != nil {
				return "", fmt.Errorf("socket: %w", err)
			}
			defer unix.Close(fd)
			return did("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}))
		},
		"netlink: sockets of the host": func(*Targets) (string, error) {
			fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
			if err != nil {
				return "", fmt.Errorf("socket: %w", err)
			}
			return "may ask for sockets", unix.Close(fd)
		},
		"net: change an interface": func(*Targets) (string, error) {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return "", fmt.Errorf("socket: %w", err)
			}
			defer unix.Close(fd)
			r, err := unix.NewIfreq("lo")
			if err != nil {
				return "", err
			}
			if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
				return "", fmt.Errorf("SIOCGIFFLAGS: %w", err)
			}
			return did("SIOCSIFFLAGS", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r))
		},
	}
	for _, kind := range []string{"tcp loopback", "tcp host address", "tcp loopback v6"} {
		m["net: "+kind] = func(t *Targets) (string, error) { return dial("tcp", t.TCP[kind]) }
	}
	return m
}

func makes(family, kind, proto int) (string, error) {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return "", fmt.Errorf("socket: %w", err)
	}
	return fmt.Sprintf("made a socket of family %d", family), unix.Close(fd)
}

// ask sends one datagram and wants any answer.
func ask(addr string, b []byte) (string, error) {
	c, err := net.DialTimeout("udp", addr, netWait)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(netWait)); err != nil {
		return "", err
	}
	if _, err := c.Write(b); err != nil {
		return "", err
	}
	if _, err := c.Read(make([]byte, 512)); err != nil {
		return "", err
	}
	return "answered", nil
}

func lookup(t *Targets) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*netWait)
	defer cancel()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", t.DNS)
	}}
	a, err := r.LookupHost(ctx, "c2VjcmV0.example.test.")
	if err != nil {
		return "", err
	}
	return "resolved to " + strings.Join(a, " "), nil
}

func icmp(t *Targets) (string, error) {
	last := error(errNothing)
	for _, kind := range []int{unix.SOCK_RAW, unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			last = fmt.Errorf("socket: %w", err)
			continue
		}
		f := os.NewFile(uintptr(fd), "icmp")
		defer f.Close()
		var to unix.SockaddrInet4
		copy(to.Addr[:], net.ParseIP(t.HostIP).To4())
		echo := []byte{8, 0, 0, 0, 0, 1, 0, 1} // type 8; the sum is below
		echo[2], echo[3] = 0xf7, 0xfd
		if last = unix.Sendto(fd, echo, 0, &to); last != nil {
			last = fmt.Errorf("sendto: %w", last)
			continue
		}
		tv := unix.NsecToTimeval(netWait.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return "", err
		}
		if _, _, last = unix.Recvfrom(fd, make([]byte, 512), 0); last == nil {
			return "answered", nil
		}
	}
	return "", last
}

// netlink makes one dump request and returns what comes back of another
// interface than loopback, or the kernel's refusal.
func netlink(proto int, kind uint16, size int) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	b := make([]byte, size)
	h := (*unix.NlMsghdr)(unsafe.Pointer(&b[0]))
	*h = unix.NlMsghdr{Len: uint32(size), Type: kind, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK, Seq: 1}
	if proto == unix.NETLINK_ROUTE {
		h.Flags = unix.NLM_F_REQUEST | unix.NLM_F_DUMP
		b[16] = unix.AF_INET
	}
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("sendto: %w", err)
	}
	tv := unix.NsecToTimeval(netWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return nil, err
	}
	in := make([]byte, 16<<10)
	n, _, err := unix.Recvfrom(fd, in, 0)
	if err != nil {
		return nil, fmt.Errorf("recvfrom: %w", err)
	}
	return routes(in[:n])
}

// routes returns the messages that are neither the end nor of the local table.
func routes(b []byte) ([]byte, error) {
	for len(b) >= unix.SizeofNlMsghdr {
		h := (*unix.NlMsghdr)(unsafe.Pointer(&b[0]))
		if h.Len < unix.SizeofNlMsghdr || int(h.Len) > len(b) {
			return nil, io.ErrUnexpectedEOF
		}
		switch {
		case h.Type == unix.NLMSG_ERROR:
			no := *(*int32)(unsafe.Pointer(&b[unix.SizeofNlMsghdr]))
			if no != 0 {
				return nil, unix.Errno(-no)
			}
			return b, nil
		case h.Type == unix.NLMSG_DONE:
			return nil, nil
		case h.Type != unix.RTM_NEWROUTE || b[unix.SizeofNlMsghdr+4] != unix.RT_TABLE_LOCAL:
			return b, nil
		}
		b = b[min(len(b), (int(h.Len)+3)&^3):]
	}
	return nil, nil
}
