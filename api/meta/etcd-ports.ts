/** The ports that etcd listens on by default. */

/** The port for clients, such as API servers. */
export const ETCD_CLIENT_PORT = 2379;
/** The port for other members of etcd. */
export const ETCD_PEER_PORT = 2380;
