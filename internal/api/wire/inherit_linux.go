package wire

import (
	"net"
	"os"

	"agentos/internal/lib/fault"

	"golang.org/x/sys/unix"
)

// InheritedFD is the descriptor on which a started agentosd finds its client.
const InheritedFD = 3

// Pair makes the two ends of a wire: ours, and one for a child's InheritedFD.
// The caller closes child after the start.
func Pair() (ours net.Conn, child *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Unavailable, "close other programs and try again", "make a socket pair")
	}
	mine := os.NewFile(uintptr(fds[0]), "wire")
	child = os.NewFile(uintptr(fds[1]), "wire")
	defer mine.Close()
	ours, err = net.FileConn(mine)
	if err != nil {
		_ = child.Close()
		return nil, nil, fault.Wrap(err, fault.Internal, "", "wrap the socket pair")
	}
	return ours, child, nil
}

// Inherited takes the connection that the parent left on InheritedFD; no later
// child inherits it. Errors: there is no connected Unix socket.
func Inherited() (*net.UnixConn, error) {
	const next = "agentosd --inherit is started by agentos; run agentos instead"
	kind, err := unix.GetsockoptInt(InheritedFD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return nil, fault.New(fault.Usage, next, "find the client: descriptor %d is no stream socket", InheritedFD)
	}
	f := os.NewFile(InheritedFD, "client")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, next, "find the client")
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fault.New(fault.Usage, next, "find the client: descriptor %d is no Unix socket", InheritedFD)
	}
	return u, nil
}
