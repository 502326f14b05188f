package launchwire

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
)

// ErrFormat is the base of every decoding error.
var ErrFormat = errors.New("launch wire message is not valid")

// EncodeRequest makes the bytes of one message to the launcher.
func EncodeRequest(r Request) ([]byte, error) { return encode(r, r.members()) }

// EncodeReply makes the bytes of one message from the launcher.
func EncodeReply(r Reply) ([]byte, error) { return encode(r, r.members()) }

// DecodeRequest parses a message to the launcher. The plan inside is well-formed,
// not yet checked.
func DecodeRequest(b []byte) (Request, error) {
	var r Request
	err := decode(b, &r)
	if err == nil {
		err = one(r.members())
	}
	return r, err
}

// DecodeReply parses a message from the launcher.
func DecodeReply(b []byte) (Reply, error) {
	var r Reply
	err := decode(b, &r)
	if err == nil {
		err = one(r.members())
	}
	return r, err
}

func (r Request) members() int {
	return count(r.Start != nil, r.Stop != nil, r.Ping != nil, r.Signal != nil)
}

func (r Reply) members() int {
	return count(r.Started != nil, r.Exited != nil, r.Failed != nil, r.Pong != nil)
}

func encode(m any, members int) ([]byte, error) {
	if err := one(members); err != nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode launch wire message: %w", err)
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrFormat, len(b), MaxMessage)
	}
	return b, nil
}

func decode(b []byte, m any) error {
	if len(b) > MaxMessage {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrFormat, len(b), MaxMessage)
	}
	if err := json.Unmarshal(b, m, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

func one(members int) error {
	if members != 1 {
		return fmt.Errorf("%w: exactly one member must be set", ErrFormat)
	}
	return nil
}

func count(set ...bool) (n int) {
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}
