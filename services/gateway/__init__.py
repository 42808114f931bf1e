"""The gateway: the door that users and programs come through. It records what they ask for and shows what the record says."""
