"""The knowledge store on SQLite and on PostgreSQL, with the same answers, ids and scores.

In come documents, claims and queries; out go records and scored chunks. The logic is here once, over one
connection Protocol; each engine has its SQL, its migrations and its indexes. It may import storage, search,
the data model, `knowledge.graph` and `knowledge.search`.
"""
