package config

import "sort"

// nearest is the next step for an unknown key: the known one that it was most
// likely meant to be, if any is close.
func nearest(name string, keys map[string]key) string {
	const list = "agentos config show lists the keys"
	if len(name) > 64 {
		return list
	}
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k)
	}
	sort.Strings(names)
	best, dist := "", 1+len(name)/3
	for _, k := range names {
		if d := distance(name, k); d <= dist && (best == "" || d < dist) {
			best, dist = k, d
		}
	}
	if best == "" {
		return list
	}
	return "did you mean " + best + "? " + list
}

// distance is the number of single-byte edits between a and b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
