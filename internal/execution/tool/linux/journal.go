//go:build linux

package linux

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/lib/fault"
)

type journalDoc struct {
	Unit      string     `json:"unit"`
	Entries   []entryDoc `json:"entries"`
	Malformed int        `json:"malformed"`
	Warning   string     `json:"warning,omitempty"`
}

type entryDoc struct {
	Time       string `json:"time"`
	Priority   string `json:"priority,omitempty"`
	Identifier string `json:"identifier,omitempty"`
	PID        int    `json:"pid,omitempty"`
	Message    string `json:"message"`
	cut        bool
}

func (d *journalDoc) lists() []list { return []list{listOf("/entries", &d.Entries)} }

func (d *journalDoc) cuts() []string {
	var out []string
	for i, e := range d.Entries {
		if e.cut {
			out = append(out, itemPointer("/entries", i, "message"))
		}
	}
	return out
}

const (
	defaultLines = 50
	maxMessage   = 4096      // bytes of one message; journalctl leaves out longer fields
	maxEntry     = 256 << 10 // bytes of one JSON line
	maxJournal   = 64 << 20  // bytes of journalctl's whole answer
	maxFiles     = 4096      // entries of a journal folder looked at
)

// journalDirs are where journald keeps its files: persistent, then volatile.
var journalDirs = []string{"/var/log/journal", "/run/log/journal"}

func (h Host) journalDirs() []string {
	if h.JournalDir != "" {
		return []string{h.JournalDir}
	}
	return h.paths(journalDirs...)
}

func readJournal(ctx context.Context, h Host, a journalArgs) (document, error) {
	if _, err := os.Stat(h.Journalctl); err != nil {
		return nil, fault.New(fault.Unavailable, "install systemd's journalctl, or read the service's own log files",
			"find journalctl: not on this host")
	}
	if err := h.journalReadable(); err != nil {
		return nil, err
	}
	lines := defaultLines
	if a.Lines != nil {
		lines = *a.Lines
	}
	d := &journalDoc{Unit: *a.Unit, Entries: []entryDoc{}}
	complaint, err := stream(ctx, h.Journalctl, h.journalArgv(a, lines), func(r io.Reader) error { return d.parse(r, lines) })
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "check the journal with `journalctl --verify`", "read journal of %q", *a.Unit)
	}
	// journalctl passes over a file that it can't read, with success.
	if d.Warning = complaint; complaint != "" && len(d.Entries) == 0 {
		return nil, fault.New(fault.Corrupt, "check the journal with `journalctl --verify`", "read journal of %q: %s", *a.Unit, complaint)
	}
	return d, nil
}

// journalArgv is fixed but for values that decode checked; the unit holds no glob
// character and no leading dash.
func (h Host) journalArgv(a journalArgs, lines int) []string {
	argv := []string{
		"--no-pager", "--quiet", "--output=json", "--output-fields=MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_COMM,_PID",
		"--reverse", "--lines=" + strconv.Itoa(lines), "--unit=" + *a.Unit,
	}
	if a.SinceMinutes != nil {
		since := h.Now().Add(-time.Duration(*a.SinceMinutes) * time.Minute)
		argv = append(argv, "--since=@"+strconv.FormatInt(since.Unix(), 10))
	}
	if a.Priority != nil {
		argv = append(argv, "--priority="+*a.Priority)
	}
	if h.JournalDir != "" {
		argv = append(argv, "--directory="+h.JournalDir)
	}
	return argv
}

// journalReadable says why journalctl would find nothing: no journal, or none
// that this user may read. journalctl itself answers with success and silence.
func (h Host) journalReadable() error {
	seen := 0
	for _, dir := range h.journalDirs() {
		subs, _, err := names(dir, maxFiles)
		if err != nil {
			continue
		}
		for _, sub := range append(subs, ".") {
			files, _, err := names(dir+"/"+sub, maxFiles)
			if errors.Is(err, os.ErrPermission) {
				seen++
			}
			for _, f := range files {
				if !strings.HasSuffix(f, ".journal") {
					continue
				}
				if j, err := openRegular(dir + "/" + sub + "/" + f); err == nil {
					j.Close()
					return nil
				}
				seen++
			}
		}
	}
	if seen > 0 {
		return fault.New(fault.Unavailable, "let the tool's user join the group systemd-journal", "open journal: not readable by this user")
	}
	return fault.New(fault.Unavailable, "start systemd-journald, or read the service's own log files", "find journal: no journal file on this host")
}

func (d *journalDoc) parse(r io.Reader, lines int) error {
	full := false
	err := eachLine(r, maxEntry, maxJournal, func(l []byte) bool {
		if len(l) == 0 {
			return true
		}
		e, err := parseEntry(l)
		if err != nil {
			d.Malformed++
			full = d.Malformed > lines
			return !full
		}
		d.Entries = append(d.Entries, e)
		full = len(d.Entries) == lines
		return !full
	})
	if err == nil && full {
		return errEnough
	}
	return err
}

// parseEntry parses one line of `journalctl -o json`
// (https://systemd.io/JOURNAL_EXPORT_FORMATS/#journal-json-format): a value is a
// string, an array of byte values, null when it is too large, or an array of
// these when the field occurs several times.
func parseEntry(l []byte) (entryDoc, error) {
	var f map[string]jsontext.Value
	if err := json.Unmarshal(l, &f); err != nil {
		return entryDoc{}, errors.New("parse journal entry: not a JSON object")
	}
	stamp, _ := fieldText(f["__REALTIME_TIMESTAMP"])
	usec, err := strconv.ParseInt(stamp, 10, 64)
	at := time.UnixMicro(usec).UTC()
	if err != nil || usec < 0 || at.Year() > 9999 {
		return entryDoc{}, errors.New("parse journal entry: no valid time")
	}
	e := entryDoc{Time: at.Format("2006-01-02T15:04:05.000000Z07:00")}
	text, large := fieldText(f["MESSAGE"])
	e.Message, e.cut = clean(text, maxMessage, true)
	e.cut = e.cut || large
	if s, _ := fieldText(f["PRIORITY"]); len(s) == 1 && s[0] >= '0' && s[0] <= '7' {
		e.Priority = priorities[s[0]-'0']
	}
	if e.Identifier, _ = fieldText(f["SYSLOG_IDENTIFIER"]); e.Identifier == "" {
		e.Identifier, _ = fieldText(f["_COMM"])
	}
	e.Identifier = line(e.Identifier, 128)
	s, _ := fieldText(f["_PID"])
	if pid, err := strconv.ParseInt(s, 10, 32); err == nil && pid > 0 {
		e.PID = int(pid)
	}
	return e, nil
}

// fieldText is the first value of a field as text; large means that journalctl
// left it out for its size.
func fieldText(v jsontext.Value) (text string, large bool) {
	switch v.Kind() {
	case '"':
		_ = json.Unmarshal(v, &text) // a string literal of a document that was parsed
	case 'n':
		return "", true
	case '[':
		var list []jsontext.Value
		if json.Unmarshal(v, &list) != nil || len(list) == 0 {
			return "", false
		}
		if list[0].Kind() != '0' {
			if list[0].Kind() == '[' && nested(list[0]) {
				return "", false
			}
			return fieldText(list[0])
		}
		b := make([]byte, 0, len(list))
		for _, n := range list {
			c, err := strconv.ParseUint(string(n), 10, 8)
			if err != nil {
				return "", false
			}
			b = append(b, byte(c))
		}
		return string(b), false
	}
	return text, false
}

// nested reports an array whose first item is again an array: deeper than the
// format goes.
func nested(v jsontext.Value) bool {
	var list []jsontext.Value
	return json.Unmarshal(v, &list) == nil && len(list) > 0 && list[0].Kind() == '['
}
