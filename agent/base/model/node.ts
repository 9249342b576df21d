/** The Node object, as the agent handles it. Times are strings as on the wire. */
import type { V1Node } from '@kubernetes/client-node';
import type { ObjectMeta } from '../../../api/meta/object.ts';
import type { Wire } from './wire.ts';

/** A `v1` Node with a name. */
export type NodeObject = Omit<Wire<V1Node>, 'metadata'> & { metadata: ObjectMeta & { name: string } };
