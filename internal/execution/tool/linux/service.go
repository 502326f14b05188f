//go:build linux

package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"agentos/internal/lib/fault"
)

type serviceDoc struct {
	Unit             string   `json:"unit"`
	ID               string   `json:"id,omitempty"`
	Description      string   `json:"description,omitempty"`
	LoadState        string   `json:"load_state"`
	ActiveState      string   `json:"active_state"`
	SubState         string   `json:"sub_state,omitempty"`
	UnitFileState    string   `json:"unit_file_state,omitempty"`
	Result           string   `json:"result,omitempty"`
	MainPID          *uint64  `json:"main_pid,omitempty"`
	Restarts         *uint64  `json:"restarts,omitempty"`
	ExecMainStatus   *int32   `json:"exec_main_status,omitempty"`
	ExecMainCode     *int32   `json:"exec_main_code,omitempty"`
	ActiveSince      string   `json:"active_since,omitempty"`
	InactiveSince    string   `json:"inactive_since,omitempty"`
	MemoryCurrent    *uint64  `json:"memory_current,omitempty"`
	TasksCurrent     *uint64  `json:"tasks_current,omitempty"`
	CPUUsage         *uint64  `json:"cpu_usage_us,omitempty"`
	NeedDaemonReload *bool    `json:"need_daemon_reload,omitempty"`
	Malformed        []string `json:"malformed,omitempty"`
}

func (d *serviceDoc) lists() []list  { return nil }
func (d *serviceDoc) cuts() []string { return nil }

const (
	systemd    = "org.freedesktop.systemd1"
	maxReplies = 1 << 20 // bytes that the bus may send in one call of the tool
)

var unitType = map[string]string{
	"service": "Service", "socket": "Socket", "timer": "Timer", "target": "Target", "mount": "Mount", "path": "Path",
	"slice": "Slice", "scope": "Scope", "swap": "Swap", "automount": "Automount", "device": "Device",
}

// property is one D-Bus property and where it goes; set reports whether the value
// was of the documented type. Read one by one: asking for all would bring the
// unit's environment and command lines into this process.
type property struct {
	iface, name string
	set         func(d *serviceDoc, v any) bool
}

var unitProperties = []property{
	{".Unit", "LoadState", text(func(d *serviceDoc) *string { return &d.LoadState }, 64)},
	{".Unit", "ActiveState", text(func(d *serviceDoc) *string { return &d.ActiveState }, 64)},
	{".Unit", "SubState", text(func(d *serviceDoc) *string { return &d.SubState }, 64)},
	{".Unit", "UnitFileState", text(func(d *serviceDoc) *string { return &d.UnitFileState }, 64)},
	{".Unit", "Id", text(func(d *serviceDoc) *string { return &d.ID }, 255)},
	{".Unit", "Description", text(func(d *serviceDoc) *string { return &d.Description }, 512)},
	{".Unit", "ActiveEnterTimestamp", stamp(func(d *serviceDoc) *string { return &d.ActiveSince })},
	{".Unit", "InactiveEnterTimestamp", stamp(func(d *serviceDoc) *string { return &d.InactiveSince })},
	{".Unit", "NeedDaemonReload", func(d *serviceDoc, v any) bool {
		b, ok := v.(bool)
		if ok {
			d.NeedDaemonReload = &b
		}
		return ok
	}},
	{"", "Result", text(func(d *serviceDoc) *string { return &d.Result }, 64)},
	{"", "MainPID", count(func(d *serviceDoc) **uint64 { return &d.MainPID })},
	{"", "NRestarts", count(func(d *serviceDoc) **uint64 { return &d.Restarts })},
	{"", "MemoryCurrent", count(func(d *serviceDoc) **uint64 { return &d.MemoryCurrent })},
	{"", "TasksCurrent", count(func(d *serviceDoc) **uint64 { return &d.TasksCurrent })},
	{"", "CPUUsageNSec", cpuTime},
	{"", "ExecMainStatus", status(func(d *serviceDoc) **int32 { return &d.ExecMainStatus })},
	{"", "ExecMainCode", status(func(d *serviceDoc) **int32 { return &d.ExecMainCode })},
}

func text(to func(*serviceDoc) *string, limit int) func(*serviceDoc, any) bool {
	return func(d *serviceDoc, v any) bool {
		s, ok := v.(string)
		*to(d) = line(s, limit)
		return ok
	}
}

// count takes an unsigned number; all ones is systemd's "not known".
func count(to func(*serviceDoc) **uint64) func(*serviceDoc, any) bool {
	return func(d *serviceDoc, v any) bool {
		var n uint64
		switch v := v.(type) {
		case uint32:
			n = uint64(v)
		case uint64:
			n = v
		default:
			return false
		}
		if n <= maxSafe {
			*to(d) = &n
		}
		return n <= maxSafe || n == 1<<64-1
	}
}

// cpuTime takes nanoseconds to microseconds: a JSON number holds 104 days of the
// former.
func cpuTime(d *serviceDoc, v any) bool {
	n, ok := v.(uint64)
	if us := n / 1000; ok && n != 1<<64-1 && us <= maxSafe {
		d.CPUUsage = &us
	}
	return ok
}

func status(to func(*serviceDoc) **int32) func(*serviceDoc, any) bool {
	return func(d *serviceDoc, v any) bool {
		n, ok := v.(int32)
		if ok {
			*to(d) = &n
		}
		return ok
	}
}

// stamp takes microseconds since 1970; 0 is "never".
func stamp(to func(*serviceDoc) *string) func(*serviceDoc, any) bool {
	return func(d *serviceDoc, v any) bool {
		n, ok := v.(uint64)
		const year9999 = 253402300799 * 1000000
		if ok && n > 0 && n < year9999 {
			*to(d) = time.UnixMicro(int64(n)).UTC().Format(time.RFC3339)
		}
		return ok && n < year9999
	}
}

func inspectService(ctx context.Context, h Host, a serviceArgs) (document, error) {
	raw := h.Conns[h.Bus]
	if raw == nil {
		return nil, fault.New(fault.Unavailable, "this host runs no systemd, or its system bus is not started: use its own service manager",
			"connect system bus: no socket %q", h.Bus)
	}
	defer raw.Close()
	// The library closes the connection when ctx ends, which ends every wait below.
	conn, err := dbus.NewConn(&bounded{raw, maxReplies}, dbus.WithContext(ctx))
	if err != nil {
		return nil, busFault(ctx, err)
	}
	defer conn.Close()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return nil, busFault(ctx, err)
	}
	if err := conn.Hello(); err != nil {
		return nil, busFault(ctx, err)
	}
	return readUnit(ctx, conn, *a.Unit)
}

func readUnit(ctx context.Context, conn *dbus.Conn, unit string) (document, error) {
	d := &serviceDoc{Unit: unit}
	obj := conn.Object(systemd, dbus.ObjectPath("/org/freedesktop/systemd1/unit/"+label(unit)))
	own := "." + unitType[unit[strings.LastIndexByte(unit, '.')+1:]]
	for _, p := range unitProperties {
		iface := p.iface
		if iface == "" {
			iface = own
		}
		var v dbus.Variant
		err := obj.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", dbus.FlagNoAutoStart, systemd+iface, p.name).Store(&v)
		switch {
		case err == nil && p.set(d, v.Value()):
		case err == nil:
			d.Malformed = append(d.Malformed, p.name)
		case p.name == "LoadState" && (isRefusal(err, "InvalidArgs", "UnknownObject") || isRefusedName(err)):
			return nil, fault.New(fault.NotFound, "check the name; a template needs an instance, such as getty@tty1.service",
				"find unit %q: systemd can't load one of that name", unit)
		case isRefusal(err, "UnknownProperty", "UnknownInterface", "InvalidArgs"):
			// Not every type of unit and every version of systemd has each property.
		case isMalformed(err):
			d.Malformed = append(d.Malformed, p.name)
		default:
			return nil, busFault(ctx, err)
		}
	}
	if d.LoadState == "" || d.ActiveState == "" {
		return nil, fault.New(fault.Malformed, "check that systemd owns its name on the system bus: `busctl status "+systemd+"`",
			"read unit %q: systemd gave no load and active state", unit)
	}
	return d, nil
}

// isRefusal reports a D-Bus error of the standard ones named.
func isRefusal(err error, names ...string) bool {
	var e dbus.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, n := range names {
		if e.Name == "org.freedesktop.DBus.Error."+n {
			return true
		}
	}
	return false
}

// isRefusedName reports systemd's own error for a name that is no unit's.
func isRefusedName(err error) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == systemd+".NoSuchUnit"
}

// isMalformed reports a reply whose body isn't one variant.
func isMalformed(err error) bool {
	var e dbus.Error
	return !errors.As(err, &e) && strings.HasPrefix(err.Error(), "dbus.Store:")
}

func busFault(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		// dbus-daemon does this to a user that it can't look up.
		return fault.New(fault.Unavailable, fmt.Sprintf("give user %d, which asks, an account on this host: dbus-daemon refuses users without one", os.Getuid()),
			"ask systemd: the system bus closed the connection")
	case isRefusal(err, "ServiceUnknown", "NameHasNoOwner"):
		return fault.New(fault.Unavailable, "this host's service manager is not systemd: use its own", "ask systemd: it is not on the system bus")
	case isRefusal(err, "AccessDenied"):
		return fault.New(fault.Unavailable, "allow the tool's user to read unit properties", "ask systemd: access denied")
	}
	return fault.Wrap(err, fault.Unavailable, "check the system bus: `busctl status`", "ask systemd")
}

// label escapes a unit name for an object path as systemd's bus_label_escape:
// all but letters and digits, and a leading digit, become _xx.
func label(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		digit := c >= '0' && c <= '9'
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || digit && i > 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "_%02x", c)
	}
	return b.String()
}
