/** The name that distinguishes the pods of one agent from those of other agents on the same container runtime. */
import { createHash } from 'node:crypto';

/** The label of everything that an agent creates in a container runtime. Its value is the agent's instance. */
export const LABEL_INSTANCE = 'orchlet.dev/instance';

interface InstanceFacts {
  readonly nodeName: string;
  /** The agent's root directory. */
  readonly rootDirectory: string;
}

/** Returns the name of the agent: 16 hexadecimal digits, which change with the node name and the root directory only. */
export function instanceOf({ nodeName, rootDirectory }: InstanceFacts): string {
  return createHash('sha256').update(`${nodeName}\0${rootDirectory}`).digest('hex').slice(0, 16);
}

/** Returns the name of the bridge of the pod network that an agent creates in Docker. */
export function dockerBridge(instance: string): string {
  return `orc${instance.slice(0, 10)}`;
}
