"""Rights: users, tokens, roles, workspaces, and the rules that judge a request. Pure."""
