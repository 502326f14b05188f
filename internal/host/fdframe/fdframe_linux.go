// Package fdframe carries bounded messages, with descriptors, over one connected
// Unix stream socket. It is how the shim talks with agentosd: a message is at
// most a fixed number of bytes, checked before a byte of it is read, and a
// descriptor travels with the message it belongs to.
//
// State owned: the connection. Imports: x/sys. Imported by: the shim, control.
// Locks: Conn.wmu, a leaf, orders writers; one goroutine reads.
// Format: docs/spec/gate-wire.md. Tests: fdframe_linux_test.go, FuzzRead.
package fdframe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// MaxFiles is the most descriptors one message may carry.
const MaxFiles = 4

const header = 5 // big-endian length of the body, then the number of descriptors

// ErrTooLarge is returned for a message over the limit, in either direction.
var ErrTooLarge = errors.New("message too large")

// Conn is one end. Write is safe for concurrent use; Read is for one goroutine.
type Conn struct {
	c   *net.UnixConn
	max int
	wmu sync.Mutex
}

// New takes over c. Messages of more than max bytes are refused.
func New(c *net.UnixConn, max int) *Conn { return &Conn{c: c, max: max} }

// Close closes the connection; a blocked Read or Write returns.
func (c *Conn) Close() error { return c.c.Close() }

// Write sends one message. The files stay the caller's to close.
func (c *Conn) Write(body []byte, files ...*os.File) error {
	if len(body) > c.max {
		return fmt.Errorf("write message: %w: %d bytes, limit %d", ErrTooLarge, len(body), c.max)
	}
	if len(files) > MaxFiles {
		return fmt.Errorf("write message: %d descriptors, limit %d", len(files), MaxFiles)
	}
	var h [header]byte
	binary.BigEndian.PutUint32(h[:], uint32(len(body)))
	h[4] = byte(len(files))
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = syscall.UnixRights(fds...)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n, _, err := c.c.WriteMsgUnix(h[:], oob, nil)
	if err == nil && n < header {
		_, err = c.c.Write(h[n:])
	}
	if err == nil && len(body) > 0 {
		_, err = c.c.Write(body)
	}
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// Read returns the next message and its descriptors, which the caller must
// close. io.EOF means that the other end closed between messages. After any
// other error the connection is of no use.
func (c *Conn) Read() ([]byte, []*os.File, error) {
	h, files, err := c.readHeader()
	if err != nil {
		return nil, nil, err
	}
	n := int(binary.BigEndian.Uint32(h[:]))
	switch {
	case n > c.max:
		err = fmt.Errorf("read message: %w: %d bytes, limit %d", ErrTooLarge, n, c.max)
	case int(h[4]) != len(files):
		err = fmt.Errorf("read message: %d descriptors announced, %d received", h[4], len(files))
	}
	body := []byte{}
	if err == nil {
		body = make([]byte, n)
		if _, err = io.ReadFull(c.c, body); err != nil {
			err = fmt.Errorf("read message: %w", noEOF(err))
		}
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return body, files, nil
}

func (c *Conn) readHeader() (h [header]byte, files []*os.File, err error) {
	got := 0
	for got < header {
		oob := make([]byte, syscall.CmsgSpace(4*MaxFiles))
		n, oobn, flags, _, err := c.c.ReadMsgUnix(h[got:], oob)
		if oobn > 0 {
			more, perr := parseFiles(oob[:oobn])
			files = append(files, more...)
			if perr != nil && err == nil {
				err = perr
			}
		}
		if err == nil && flags&syscall.MSG_CTRUNC != 0 {
			err = errors.New("more descriptors than allowed")
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			closeAll(files)
			if got == 0 && errors.Is(err, io.EOF) {
				return h, nil, io.EOF
			}
			return h, nil, fmt.Errorf("read message: %w", noEOF(err))
		}
		got += n
	}
	return h, files, nil
}

func parseFiles(oob []byte) ([]*os.File, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// noEOF makes an end in the middle of a message an error of its own.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Pair returns both ends of a new connection, neither of which a child inherits
// by itself.
func Pair() (a, b *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pair"), os.NewFile(uintptr(fds[1]), "pair"), nil
}

// Inherited turns a descriptor that this process was started with into a
// connection and closes f.
func Inherited(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("use inherited descriptor %d: %w", f.Fd(), err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("inherited descriptor %d is not a unix socket", f.Fd())
	}
	return u, nil
}
