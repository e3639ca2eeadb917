package dynamodb

import (
	"encoding/json"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

// policy is one of AWS's, of identities.
type policy struct {
	Version   string       `json:"Version"`
	Statement []permission `json:"Statement"`
}

type permission struct {
	Sid      string   `json:"Sid"`
	Effect   string   `json:"Effect"`
	Action   []string `json:"Action"`
	Resource []string `json:"Resource"`
}

// Grants implements stores.Granter: the policy of a role, for its tables in every region and account.
// Runtime needs the rights for the handlers' own tables besides.
func (s *Store) Grants(role stores.Role) []string {
	allow := func(sid, table string, actions ...string) permission {
		p := permission{Sid: sid, Effect: "Allow", Resource: []string{"arn:aws:dynamodb:*:*:table/" + table, "arn:aws:dynamodb:*:*:table/" + table + "/index/*"}}
		for _, a := range actions {
			p.Action = append(p.Action, "dynamodb:"+a)
		}
		return p
	}
	reads := []string{"DescribeTable", "GetItem", "BatchGetItem", "Query"}
	all := slices.Concat(reads, []string{"PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"})
	p := policy{Version: "2012-10-17"}
	switch role {
	case stores.RoleMigrator:
		p.Statement = []permission{
			allow("Tables", s.table, "CreateTable", "DescribeTable", "UpdateTable", "UpdateTimeToLive", "DescribeTimeToLive", "GetItem", "PutItem"),
			allow("Content", s.contents, "CreateTable", "DescribeTable"),
		}
	case stores.RoleRuntime, stores.RoleOperator:
		p.Statement = []permission{allow("Inbox", s.table, all...), allow("Content", s.contents, "Query", "PutItem", "DeleteItem")}
	case stores.RoleReadOnly:
		p.Statement = []permission{allow("Inbox", s.table, reads...)}
	}
	text, _ := json.MarshalIndent(p, "", "  ") //nolint:errchkjson // of texts
	return []string{string(text)}
}
