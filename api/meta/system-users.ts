/** Names the users and groups that Kubernetes defines, and that components recognize wherever they meet them. */

/** The user of requests without credentials. */
export const ANONYMOUS_USER = 'system:anonymous';
/** The group of all users but the anonymous one. */
export const AUTHENTICATED_GROUP = 'system:authenticated';
/** The group of the anonymous user. */
export const UNAUTHENTICATED_GROUP = 'system:unauthenticated';
/** The group that may do everything, whatever the authorizers say. */
export const MASTERS_GROUP = 'system:masters';
/** The group of all nodes, which is the organization of their certificates. */
export const NODES_GROUP = 'system:nodes';
/** The prefix of the user of a node. The node's name follows. */
export const NODE_USER_PREFIX = 'system:node:';
/** The extra of a service account's user that names the node of its pod. */
export const NODE_NAME_EXTRA = 'authentication.kubernetes.io/node-name';
/** The extra of a user that identifies the credential. */
export const CREDENTIAL_ID_EXTRA = 'authentication.kubernetes.io/credential-id';
