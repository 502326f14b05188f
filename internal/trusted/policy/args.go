package policy

import (
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
)

// argTypes finds the arguments that p reads, each with the type that its use
// asks for; String where the use leaves it open.
func argTypes(p *ast.Policy) map[types.String]resolved.IsType {
	found := map[types.String]bool{}
	hints := map[types.String]resolved.IsType{}
	hint := func(t resolved.IsType, nodes ...ast.IsNode) {
		for _, n := range nodes {
			if name, ok := argName(n); ok && t != nil && hints[name] == nil {
				hints[name] = t
			}
		}
	}
	for _, cond := range p.Conditions {
		hint(resolved.BoolType{}, cond.Body)
	}
	visit(p, func(n ast.IsNode) {
		if name, ok := argName(n); ok {
			found[name] = true
		}
		if h, ok := n.(ast.NodeTypeHas); ok && isArgs(h.Arg) {
			found[h.Value] = true
		}
		hintFrom(n, hint)
	})
	out := map[types.String]resolved.IsType{}
	for name := range found {
		out[name] = resolved.StringType{}
		if t := hints[name]; t != nil {
			out[name] = t
		}
	}
	return out
}

func hintFrom(n ast.IsNode, hint func(resolved.IsType, ...ast.IsNode)) {
	long, boolean := resolved.LongType{}, resolved.BoolType{}
	switch n := n.(type) {
	case ast.NodeTypeLike:
		hint(resolved.StringType{}, n.Arg)
	case ast.NodeTypeLessThan:
		hint(long, n.Left, n.Right)
	case ast.NodeTypeLessThanOrEqual:
		hint(long, n.Left, n.Right)
	case ast.NodeTypeGreaterThan:
		hint(long, n.Left, n.Right)
	case ast.NodeTypeGreaterThanOrEqual:
		hint(long, n.Left, n.Right)
	case ast.NodeTypeAdd:
		hint(long, n.Left, n.Right)
	case ast.NodeTypeSub:
		hint(long, n.Left, n.Right)
	case ast.NodeTypeMult:
		hint(long, n.Left, n.Right)
	case ast.NodeTypeNegate:
		hint(long, n.Arg)
	case ast.NodeTypeNot:
		hint(boolean, n.Arg)
	case ast.NodeTypeAnd:
		hint(boolean, n.Left, n.Right)
	case ast.NodeTypeOr:
		hint(boolean, n.Left, n.Right)
	case ast.NodeTypeIfThenElse:
		hint(boolean, n.If)
	case ast.NodeTypeEquals:
		hint(literalType(n.Left), n.Right)
		hint(literalType(n.Right), n.Left)
	case ast.NodeTypeNotEquals:
		hint(literalType(n.Left), n.Right)
		hint(literalType(n.Right), n.Left)
	case ast.NodeTypeContains:
		if set, ok := n.Left.(ast.NodeTypeSet); ok && len(set.Elements) > 0 {
			hint(literalType(set.Elements[0]), n.Right)
		}
	}
}

func literalType(n ast.IsNode) resolved.IsType {
	if v, ok := n.(ast.NodeValue); ok {
		switch v.Value.(type) {
		case types.Long:
			return resolved.LongType{}
		case types.Boolean:
			return resolved.BoolType{}
		case types.String:
			return resolved.StringType{}
		}
	}
	return nil
}

func typeName(t resolved.IsType) string {
	switch t.(type) {
	case resolved.LongType:
		return "Long"
	case resolved.BoolType:
		return "Bool"
	}
	return "String"
}

// isArgs matches `context.args`, argName `context.args.NAME`.
func isArgs(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	return ok && a.Value == "args" && isVariable(a.Arg, "context")
}

func argName(n ast.IsNode) (types.String, bool) {
	a, ok := n.(ast.NodeTypeAccess)
	return a.Value, ok && isArgs(a.Arg)
}
