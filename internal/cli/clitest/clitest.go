// Package clitest helps to test that what nouns print is harmless, whatever an
// agent, a model or the system put into it.
//
// State owned: none. Imports: cli, protobuf. Imported by: tests of cli/<noun>.
// Tests: those that use it.
package clitest

import (
	"bytes"
	"testing"
	"unicode"

	"agentos/internal/cli"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
)

// Hostile is text that must not reach a terminal as it is.
const Hostile = "x\x1b]0;t\x07\x1b[2J\r\x00\u009b31m\u202e\u200b\n\x7fy"

// Env is an environment that writes to the returned buffer, as to a file, or as
// to a terminal without colours of the given width.
func Env(width int) (*cli.Env, *bytes.Buffer) {
	var out bytes.Buffer
	return &cli.Env{Out: &out, Err: &out, Getenv: func(string) string { return "" }, OutTerm: width > 0, Width: width}, &out
}

// Fill puts Hostile into every text of m, and two elements into every list.
func Fill(m proto.Message) { fill(m.ProtoReflect(), 0) }

func fill(m protoreflect.Message, depth int) {
	if s, ok := m.Interface().(*structpb.Struct); ok {
		s.Fields = map[string]*structpb.Value{Hostile: structpb.NewStringValue(Hostile), "reason": structpb.NewStringValue(Hostile)}
		return
	}
	if depth > 6 || m.Descriptor().FullName().Parent() == "google.protobuf" {
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.ContainingOneof() != nil && m.WhichOneof(f.ContainingOneof()) != f:
		case f.IsMap():
			if f.MapKey().Kind() == protoreflect.StringKind && f.MapValue().Kind() != protoreflect.MessageKind {
				if v, ok := scalar(f.MapValue()); ok {
					m.Mutable(f).Map().Set(protoreflect.ValueOfString(Hostile).MapKey(), v)
				}
			}
		case f.IsList():
			l := m.Mutable(f).List()
			for range 2 {
				if f.Kind() == protoreflect.MessageKind {
					fill(l.AppendMutable().Message(), depth+1)
				} else if v, ok := scalar(f); ok {
					l.Append(v)
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(f).Message(), depth+1)
		default:
			if v, ok := scalar(f); ok {
				m.Set(f, v)
			}
		}
	}
}

func scalar(f protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(Hostile), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(Hostile)), true
	}
	return protoreflect.Value{}, false
}

// Harmless fails the test when out holds anything but printable text and line
// ends, or when nothing hostile was shown at all.
func Harmless(t *testing.T, name string, out *bytes.Buffer) {
	t.Helper()
	s := out.String()
	for _, r := range s {
		if r != '\n' && (!unicode.IsGraphic(r) || unicode.IsControl(r)) {
			t.Errorf("%s: %U reached the terminal: %q", name, r, s)
			return
		}
	}
	if !bytes.Contains(out.Bytes(), []byte("␛[2J")) {
		t.Errorf("%s shows nothing of what it was given: %q", name, s)
	}
}
