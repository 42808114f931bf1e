"""People: users, sign-in, tokens, roles, workspaces, secrets."""
