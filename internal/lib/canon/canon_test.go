package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// TestVectors holds the examples of RFC 8785 (sections 3.2.2 and 3.2.3, and
// appendix B as far as I-JSON allows its numbers) against our bytes.
func TestVectors(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct{ in, want string }{
		"section 3.2.2": {
			`{"numbers": [333333333.33333329, 4.50, 2e-3, 0.000000000000000000000000001],
			  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		"section 3.2.3: names sort by UTF-16": {
			`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`,
			"{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\ufb33\":3}",
		},
		"appendix B": {
			`[0,-0,5e-324,-5e-324,9007199254740991,-9007199254740991,9.999999999999997e-7,0.000001,1e-6,0.1e1]`,
			`[0,0,5e-324,-5e-324,9007199254740991,-9007199254740991,9.999999999999997e-7,0.000001,0.000001,1]`,
		},
		"nested and empty": {" { \"b\" : [ ] , \"a\" : { \"d\" : { } , \"c\" : \"\" } } ", `{"a":{"c":"","d":{}},"b":[]}`},
		"control":          {`"\u0000\b\t\u001f\u007f"`, "\"\\u0000\\b\\t\\u001f\u007f\""},
		"scalar":           {` true `, `true`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Canonical([]byte(v.in))
			if err != nil || string(got) != v.want {
				t.Errorf("got  %s (%v)\nwant %s", got, err, v.want)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	if _, err := Canonical([]byte(deep(MaxDepth))); err != nil {
		t.Errorf("%d levels: %v", MaxDepth, err)
	}
	for name, v := range map[string]struct {
		in  string
		err error // nil: any
	}{
		"empty":                  {"", io.ErrUnexpectedEOF},
		"white space":            {" \n", io.ErrUnexpectedEOF},
		"too deep":               {deep(MaxDepth + 1), ErrTooDeep},
		"too large":              {`"` + strings.Repeat("a", MaxBytes) + `"`, ErrTooLarge},
		"2^53":                   {`{"n":9007199254740992}`, ErrNumber},
		"-2^53":                  {`[-9007199254740992]`, ErrNumber},
		"1e30 is an integer":     {`[1E30]`, ErrNumber},
		"overflow":               {`[1e999]`, ErrNumber},
		"duplicate name":         {`{"a":1,"a":1}`, nil},
		"duplicate by escape":    {`{"a":1,"\u0061":2}`, nil},
		"duplicate deeper":       {`[{"x":{"a":1,"b":2,"a":3}}]`, nil},
		"two documents":          {`{} {}`, nil},
		"trailing bytes":         {`{}x`, nil},
		"invalid UTF-8":          {"\"\xff\"", nil},
		"lone surrogate":         {`"\ud800"`, nil},
		"raw control":            {"\"\x01\"", nil},
		"NaN":                    {`NaN`, nil},
		"comment":                {`{/*x*/}`, nil},
		"trailing comma":         {`[1,]`, nil},
		"single quotes":          {`{'a':1}`, nil},
		"leading zero":           {`01`, nil},
		"cut":                    {`{"a":`, nil},
		"byte order mark":        {"\ufeff{}", nil},
		"second document hidden": {`{"a":1}` + strings.Repeat(" ", 100) + `{"a":2}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Canonical([]byte(v.in))
			if err == nil || (v.err != nil && !errors.Is(err, v.err)) {
				t.Errorf("got %.80q, %v; want an error (%v)", got, err, v.err)
			}
		})
	}
}

func TestObject(t *testing.T) {
	t.Parallel()
	if b, err := Object([]byte(` {"b":1,"a":2}`)); err != nil || string(b) != `{"a":2,"b":1}` {
		t.Errorf("got %s, %v", b, err)
	}
	for _, in := range []string{`[]`, `"{}"`, `null`, `1`} {
		if _, err := Object([]byte(in)); !errors.Is(err, ErrNotObject) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestMarshalAndDigest(t *testing.T) {
	t.Parallel()
	b, err := Marshal(map[string]any{"z": 1, "a": "<&>\u2028"})
	if err != nil || string(b) != "{\"a\":\"<&>\u2028\",\"z\":1}" {
		t.Errorf("got %s, %v", b, err)
	}
	if _, err := Marshal(1 << 60); !errors.Is(err, ErrNumber) {
		t.Errorf("2^60: %v", err)
	}
	// FIPS 180-2, appendix B.1.
	if d := Digest([]byte("abc")); d != "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Error(d)
	}
}

// FuzzCanonical holds three properties: the input is left alone, the canonical
// form is its own canonical form, and both mean the same to another parser.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{}`, `{"b":[1.50,-0,1e-7],"a":{"\u00e9":"\ud83d\ude00"}}`, `[9007199254740991]`, `{"a":1,"a":2}`, "\"\xff\"", `[1e999]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		once, err := Canonical(in)
		if !bytes.Equal(before, in) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			return
		}
		twice, err := Canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("canonical form of %q is %q, %v", once, twice, err)
		}
		var a, b any
		if err := json.Unmarshal(in, &a); err != nil {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", in, err)
		}
		if err := json.Unmarshal(once, &b); err != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%q and its canonical form %q mean different things (%v)", in, once, err)
		}
	})
}
