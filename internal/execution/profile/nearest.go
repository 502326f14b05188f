package profile

// Nearest returns the one of names that name was most likely meant to be, or
// the empty string. The first of equals wins.
func Nearest(name string, names []string) string {
	if len(name) > 64 {
		return ""
	}
	best, dist := "", 2+len(name)/3
	for _, n := range names {
		if d := distance(name, n); d < dist {
			best, dist = n, d
		}
	}
	return best
}

// distance is the number of single-byte edits between a and b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
