package dynamodb

import (
	"encoding/json"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/millpond-go/millpond/stores"
)

// policy is an identity-based policy of AWS.
type policy struct {
	Version   string       `json:"Version"`
	Statement []permission `json:"Statement"`
}

type permission struct {
	Sid       string         `json:"Sid"`
	Effect    string         `json:"Effect"`
	Action    []string       `json:"Action"`
	Resource  []string       `json:"Resource"`
	Condition map[string]any `json:"Condition,omitempty"`

	table string
}

const actionPrefix = "dynamodb:"

// permissions returns what a role needs.
func (s *Store) permissions(role stores.Role) []permission {
	allow := func(sid, table string, actions ...string) permission {
		p := permission{Sid: sid, Effect: "Allow", Resource: []string{"arn:aws:dynamodb:*:*:table/" + table, "arn:aws:dynamodb:*:*:table/" + table + "/index/*"}, table: table}
		for _, a := range actions {
			p.Action = append(p.Action, actionPrefix+a)
		}
		return p
	}
	examines := []string{"DescribeTable", "DescribeTimeToLive", "DescribeContinuousBackups"}
	reads := slices.Concat(examines, []string{"GetItem", "BatchGetItem", "Query"})
	writes := []string{"PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem"}
	switch role {
	case stores.RoleMigrator:
		return []permission{
			allow("Tables", s.table, slices.Concat(examines, []string{"CreateTable", "UpdateTable", "UpdateTimeToLive", "GetItem", "PutItem"})...),
			allow("Content", s.contents, slices.Concat(examines, []string{"CreateTable", "UpdateTimeToLive"})...),
		}
	case stores.RoleRuntime, stores.RoleOperator:
		return []permission{
			allow("Inbox", s.table, slices.Concat(reads, writes)...),
			allow("Content", s.contents, slices.Concat(examines, []string{"GetItem", "Query", "BatchWriteItem"}, writes)...),
		}
	case stores.RoleReadOnly:
	}
	listed := allow("Outputs", s.contents, "Query")
	listed.Condition = map[string]any{
		"ForAllValues:StringEquals": map[string]any{"dynamodb:Attributes": bareOutput},
		"StringEquals":              map[string]any{"dynamodb:Select": types.SelectSpecificAttributes},
	}
	return []permission{allow("Inbox", s.table, reads...), allow("Content", s.contents, examines...), listed}
}

// Grants implements stores.Granter. It returns the policy of a role for its tables in every region and
// account. Runtime also needs rights on the handlers' own tables. Readonly lists outputs without their
// content.
func (s *Store) Grants(role stores.Role) []string {
	text, _ := json.MarshalIndent(policy{Version: "2012-10-17", Statement: s.permissions(role)}, "", "  ") //nolint:errchkjson // of texts
	return []string{string(text)}
}
