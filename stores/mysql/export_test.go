package mysql

// Judge is judge, as a word.
func Judge(text string) string {
	switch judge(text) {
	case ends:
		return "ends"
	case unclear:
		return "unclear"
	case plain:
	}
	return "plain"
}
