package policy

import (
	_ "embed"
	"slices"
)

//go:embed default.cedar
var defaultText []byte

// Default is the shipped policy set: deny by default, an owner's own agents read.
func Default() []Source {
	return []Source{{Name: "default.cedar", Text: slices.Clone(defaultText)}}
}
