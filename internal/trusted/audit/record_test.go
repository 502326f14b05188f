package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"

	"agentos/internal/lib/canon"
)

var when = time.Date(2026, 11, 29, 23, 59, 59, 5, time.UTC)

const someCommitment = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// Each vector file is one record as stored, byte for byte.
func TestVectors(t *testing.T) {
	t.Parallel()
	tests := map[string]Record{
		"genesis.json": {Seq: 0, At: when, Kind: KindGenesis, Body: []byte(`{"key":"k","log":"l"}`)},
		"intent.json": {Seq: 41, At: when, Kind: KindIntent, Run: "run-1", Call: "call-1", Agent: "default-agent", Owner: 1000,
			Body:     []byte(`{"action":"tool.call","deep":[1,-2,{"x":null,"y":[]}],"text":"zwölf\n\"😀\""}`),
			Payloads: map[string]string{"args": someCommitment, "goal": someCommitment}},
		"leap.json": {Seq: 1<<53 - 1, At: time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC), Kind: KindOutcome, Call: "c", Owner: 1<<32 - 1,
			Body: []byte(`{"\u0001":1e-7,"load":0.25}`)},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			enc, err := Encode(want)
			if err != nil || !bytes.Equal(enc, b) {
				t.Errorf("encode: %v\n%s\n%s", err, enc, b)
			}
		})
	}
}

func TestDecodeRefusals(t *testing.T) {
	t.Parallel()
	good := `{"agent":"a","at":"2026-11-29T23:59:59.000000005Z","body":{"x":1},"call":"c","kind":"call.intent","owner":1,"payloads":{},"run":"r","seq":7,"v":1}`
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	swap := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("no %q in the record", from)
		}
		return strings.Replace(good, from, to, 1)
	}
	tests := map[string]string{
		"empty":               "",
		"not JSON":            "record",
		"array":               "[]",
		"unknown field":       swap(`"v":1`, `"v":1,"w":2`),
		"missing field":       swap(`"owner":1,`, ``),
		"repeated field":      swap(`"owner":1,`, `"owner":1,"owner":1,`),
		"space":               swap(`"owner":1`, `"owner": 1`),
		"trailing newline":    good + "\n",
		"two records":         good + good,
		"order":               swap(`"owner":1,"payloads":{}`, `"payloads":{},"owner":1`),
		"order in body":       swap(`{"x":1}`, `{"y":1,"x":1}`),
		"duplicate in body":   swap(`{"x":1}`, `{"x":1,"x":1}`),
		"escaped letter":      swap(`{"x":1}`, `{"\u0078":1}`),
		"number form":         swap(`{"x":1}`, `{"x":1.0}`),
		"negative zero":       swap(`{"x":1}`, `{"x":-0}`),
		"leading zero":        swap(`{"x":1}`, `{"x":01}`),
		"lossy integer":       swap(`{"x":1}`, `{"x":9007199254740993}`),
		"invalid UTF-8":       swap(`{"x":1}`, "{\"x\":\"\xff\"}"),
		"control character":   swap(`{"x":1}`, "{\"x\":\"\n\"}"),
		"body not an object":  swap(`{"x":1}`, `[1]`),
		"body too deep":       swap(`{"x":1}`, `{"x":`+strings.Repeat("[", MaxBodyDepth)+strings.Repeat("]", MaxBodyDepth)+`}`),
		"body too large":      swap(`{"x":1}`, `{"x":"`+strings.Repeat("a", MaxBody)+`"}`),
		"record too large":    swap(`{"x":1}`, `{"x":"`+strings.Repeat("a", MaxRecord)+`"}`),
		"version":             swap(`"v":1`, `"v":2`),
		"kind":                swap(`call.intent`, `call.other`),
		"intent without call": swap(`"call":"c"`, `"call":""`),
		"ID":                  swap(`"run":"r"`, `"run":"r r"`),
		"long ID":             swap(`"run":"r"`, `"run":"`+strings.Repeat("r", MaxID+1)+`"`),
		"owner too large":     swap(`"owner":1`, `"owner":4294967296`),
		"negative owner":      swap(`"owner":1`, `"owner":-1`),
		"sequence too large":  swap(`"seq":7`, `"seq":9007199254740992`),
		"time zone":           swap(`05Z`, `05+00:00`),
		"time digits":         swap(`.000000005Z`, `.5Z`),
		"month":               swap(`2026-11`, `2026-13`),
		"day":                 swap(`11-29`, `11-31`),
		"leap second":         swap(`23:59:59`, `23:59:60`),
		"no leap year":        swap(`2026-11-29`, `2026-02-29`),
		"year":                swap(`2026`, `1969`),
		"payload name":        swap(`"payloads":{}`, `"payloads":{"A":"`+someCommitment+`"}`),
		"payload order":       swap(`"payloads":{}`, `"payloads":{"b":"`+someCommitment+`","a":"`+someCommitment+`"}`),
		"payload commitment":  swap(`"payloads":{}`, `"payloads":{"a":"sha256:00"}`),
		"payload null":        swap(`"payloads":{}`, `"payloads":null`),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r, err := Decode([]byte(in)); !errors.Is(err, ErrRecord) {
				t.Errorf("decoded to %+v, %v", r, err)
			}
		})
	}
}

func TestNewRecord(t *testing.T) {
	t.Parallel()
	e := Entry{Kind: KindRunStart, At: when.In(time.FixedZone("x", 3600)), Run: "r", Agent: "a", Owner: 3,
		Body:     map[string]any{"b": "<&>", "a": 0.5, "ä": 1},
		Payloads: []Payload{{Name: "goal"}}}
	r, err := NewRecord(e, []string{someCommitment})
	if err != nil {
		t.Fatal(err)
	}
	r.Seq = 9
	back, err := Decode(r.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if string(back.Body) != `{"a":0.5,"b":"<&>","ä":1}` || !back.At.Equal(when) {
		t.Errorf("%+v", back)
	}
	framed, leaf := AppendFrame(nil, r)
	enc, err := Encode(r)
	if err != nil || !bytes.Equal(framed[frameHeader:], enc) {
		t.Errorf("frame differs from the encoding: %v", err)
	}
	if leaf != tlog.RecordHash(enc) {
		t.Error("leaf hash is not RFC 6962's")
	}
	for name, body := range map[string]any{"function": func() {}, "array": []int{1}, "string": "x", "invalid UTF-8": jsontext("{\"\xff\":1}")} {
		if r, err := NewRecord(Entry{Kind: KindRunEnd, At: when, Body: body}, nil); !errors.Is(err, ErrRecord) {
			t.Errorf("%s accepted as a body: %s", name, r.Body)
		}
	}
}

// jsontext is a body that brings its own encoding.
type jsontext string

func (j jsontext) MarshalJSON() ([]byte, error) { return []byte(j), nil }

// FuzzDecode: what Decode accepts has one encoding; what the fast scanner
// accepts the strict decoder accepts too, as the same record.
func FuzzDecode(f *testing.F) {
	es, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range es {
		b, err := os.ReadFile(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"agent":"","at":"2026-11-29T23:59:59.000000005Z","body":{"a":[true,false,null,"\t",{}],"b":-12},"call":"","kind":"run.end","owner":0,"payloads":{"a":"` + someCommitment + `"},"run":"","seq":0,"v":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		fast, fastOK := scan(b)
		strict, err := decodeStrict(b)
		if fastOK {
			if err != nil {
				t.Fatalf("scanned, but: %v", err)
			}
			if diff := cmp.Diff(strict, fast.record()); diff != "" {
				t.Fatal(diff)
			}
		}
		if err == nil {
			enc, err := Encode(strict)
			if err != nil || !bytes.Equal(enc, b) {
				t.Fatalf("encodes to %q, %v", enc, err)
			}
		}
		if scanObject(b) {
			c, err := canon.Object(b)
			if err != nil || !bytes.Equal(c, b) {
				t.Fatalf("taken for canonical: %q, %v", c, err)
			}
		}
	})
}
