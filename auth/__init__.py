"""Access control: who may do what (RocketMQ's ACL 2.0). The broker and the NameServer use it; it knows neither.

    model        users, resources, actions and policies: immutable values
    wire         the same as RocketMQ's tools send and show them
    decision     which policy decides about a request: a pure function
    needs        request code → the resources and actions that it touches
    directory    the users and policies in force, with the decisions that were made lately
    copy_proof   what a slave proves before it is given users
    plain_acl    the accounts of ACL 1.0, and what becomes of them: a pure mapping; plain_acl_file reads their files
    settings     the configuration keys
    guard        what stands before the handlers: authentication, then authorization

A request is signed (remoting/signing.py) with the secret key of a user. A super user may do everything; what a normal
user may do, his policies say, and what no policy says is denied. Secret keys are needed in the clear to verify
signatures, so they are kept in a file that only its owner reads, never shown, never logged.
"""
