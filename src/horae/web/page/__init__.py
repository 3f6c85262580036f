"""The page: now, next, late and why, for people who would rather look than read.

Every page is written on the server; small scripts of our own ask for it again when something has
happened and change what differs. What a person does on a page is a call of the API. Nothing is
fetched from elsewhere; every text is escaped. The `VIEWS` of a module say where it is shown.
"""
