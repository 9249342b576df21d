/** The security settings of the container runtime boundary (`runtime.ts`): namespaces, profiles, labels, capabilities. */
import type { ContainerId } from './runtime-identity.ts';

type NamespaceMode = 'pod' | 'container' | 'node' | 'target';

/** The namespaces of a sandbox or container: its own, those of the pod, of the node, or of the container `targetId`. */
export interface NamespaceOptions {
  readonly network: 'pod' | 'node';
  readonly pid: NamespaceMode;
  readonly ipc: 'pod' | 'node';
  /** Set if `pid` is `target`. */
  readonly targetId?: ContainerId;
  readonly userNamespace?: { readonly uids: IdMapping; readonly gids: IdMapping };
}

/** A range of ids of a user namespace. */
export interface IdMapping {
  readonly hostId: number;
  readonly containerId: number;
  readonly length: number;
}

/** A seccomp or AppArmor profile. */
export interface SecurityProfile {
  readonly type: 'RuntimeDefault' | 'Unconfined' | 'Localhost';
  /** The absolute path of a seccomp profile on the host, or the name of an AppArmor profile. */
  readonly localhost?: string;
}

/** The parts of an SELinux label. Absent parts are the runtime's. */
export interface SeLinuxOptions {
  readonly user?: string;
  readonly role?: string;
  readonly type?: string;
  readonly level?: string;
}

/** The security settings of a container. Absent values are those of the image or the runtime. */
export interface ContainerSecurity {
  readonly addCapabilities: readonly string[];
  readonly dropCapabilities: readonly string[];
  readonly privileged: boolean;
  readonly namespaces: NamespaceOptions;
  readonly runAsUser?: number;
  readonly runAsUserName?: string;
  readonly runAsGroup?: number;
  readonly supplementalGroups: readonly number[];
  readonly supplementalGroupsPolicy: 'Merge' | 'Strict';
  readonly readOnlyRootFilesystem: boolean;
  readonly noNewPrivileges: boolean;
  readonly maskedPaths: readonly string[] | 'default' | 'none';
  readonly seccomp: SecurityProfile;
  readonly appArmor?: SecurityProfile;
  readonly seLinux?: SeLinuxOptions;
}
