package mysql

import (
	"net/url"

	mysql "github.com/go-sql-driver/mysql"
)

// DriverConfig is what a URL means for the driver.
func DriverConfig(u *url.URL) (*mysql.Config, error) {
	c, _, err := parseURL(u)
	return c, err
}

// Judge is judge, as a word.
func Judge(text string, noEscapes bool) string {
	switch judge(text, noEscapes) {
	case ends:
		return "ends"
	case unclear:
		return "unclear"
	case marks:
		return "marks"
	case plain:
	}
	return "plain"
}
