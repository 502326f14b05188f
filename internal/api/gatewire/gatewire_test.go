package gatewire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoundTrip(t *testing.T) {
	blob := []byte(`{"a":"<&>` + "\u2028" + `"}` + "\x00raw")
	up := Up{ModelDone: &ModelDone{ID: 7, Status: "ok", InputTokens: 1, OutputTokens: 2}}
	b, err := EncodeUp(up, blob)
	if err != nil {
		t.Fatal(err)
	}
	got, gotBlob, err := DecodeUp(b)
	if err != nil || cmp.Diff(up, got) != "" || !bytes.Equal(blob, gotBlob) {
		t.Fatalf("%v %q %v", got, gotBlob, err)
	}
	down := Down{Hello: &Hello{Run: "r", Tools: []ToolInfo{{Name: "t", Schema: `{"type":"object"}`, ReadOnly: true}}, Backend: "rules", MaxOutput: 5}}
	if b, err = EncodeDown(down, nil); err != nil {
		t.Fatal(err)
	}
	gotDown, _, err := DecodeDown(b)
	if err != nil || cmp.Diff(down, gotDown) != "" {
		t.Fatal(gotDown, err)
	}
}

func raw(header string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(header))), header...)
}

func TestRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty":           {},
		"short":           {0, 0, 0},
		"header too long": {0, 0, 0, 9, '{', '}'},
		"header huge":     {0xff, 0xff, 0xff, 0xff, '{', '}'},
		"not json":        raw("x"),
		"nothing set":     raw(`{}`),
		"two set":         raw(`{"cancel":{"id":1},"tool":{"id":1,"name":"x"}}`),
		"unknown member":  raw(`{"cancel":{"id":1},"admit":true}`),
		"unknown inside":  raw(`{"cancel":{"id":1,"force":true}}`),
		"twice":           raw(`{"cancel":{"id":1},"cancel":{"id":2}}`),
		"wrong type":      raw(`{"cancel":{"id":"1"}}`),
		"negative id":     raw(`{"cancel":{"id":-1}}`),
	} {
		if m, _, err := DecodeUp(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %+v %v", name, m, err)
		}
	}
	if _, err := EncodeUp(Up{Tool: &Tool{Name: string(make([]byte, MaxHeader))}}, nil); err == nil {
		t.Error("encoded a header over the limit")
	}
	if _, err := EncodeUp(Up{Tool: &Tool{}}, make([]byte, MaxMessage)); err == nil {
		t.Error("encoded a blob over the limit")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(raw(`{"tool":{"id":1,"name":"x"}}`))
	f.Add(raw(`{"answer":{"id":1,"call":"c","status":"ok"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, blob, err := DecodeUp(b); err == nil {
			again, err := EncodeUp(m, blob)
			if err != nil {
				t.Fatal(err)
			}
			if m2, blob2, err := DecodeUp(again); err != nil || cmp.Diff(m, m2) != "" || !bytes.Equal(blob, blob2) {
				t.Fatal("round trip", err)
			}
		}
		_, _, _ = DecodeDown(b)
	})
}
