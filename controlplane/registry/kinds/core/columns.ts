/** Defines the table columns of namespaces, config maps, secrets, service accounts, nodes and pod templates. */
import type { V1ConfigMap, V1Namespace, V1Node, V1Secret } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import type { PodTemplate } from '../../../../api/kinds/pod-types.ts';
import type { TableColumns } from '../../strategy.ts';
import { age, ageColumn, column, field, formatLabels, nameColumn, nameOf, orNone } from '../../columns/column.ts';

export const namespaceColumns: TableColumns = {
  columns: [nameColumn, column('Status', 'The status of the namespace'), ageColumn],
  cells: (object) => [nameOf(object), (object as Kind<V1Namespace>).status?.phase ?? '', age(object)],
};

export const configMapColumns: TableColumns = {
  columns: [nameColumn, column('Data', field('core.v1.ConfigMap', 'data')), ageColumn],
  cells(object) {
    const { data, binaryData } = object as Kind<V1ConfigMap>;
    return [nameOf(object), Object.keys(data ?? {}).length + Object.keys(binaryData ?? {}).length, age(object)];
  },
};

export const secretColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Type', field('core.v1.Secret', 'type')),
    column('Data', field('core.v1.Secret', 'data')),
    ageColumn,
  ],
  cells(object) {
    const { data, type } = object as Kind<V1Secret>;
    return [nameOf(object), type ?? '', Object.keys(data ?? {}).length, age(object)];
  },
};

export const serviceAccountColumns: TableColumns = {
  columns: [nameColumn, ageColumn],
  cells: (object) => [nameOf(object), age(object)],
};

type Node = Kind<Pick<V1Node, 'spec' | 'status'>>;

function nodeStatus(node: Node): string {
  const words: string[] = [];
  const ready = (node.status?.conditions ?? []).find(({ type }) => type === 'Ready');
  if (ready !== undefined) words.push(ready.status === 'True' ? 'Ready' : 'NotReady');
  if (words.length === 0) words.push('Unknown');
  if (node.spec?.unschedulable === true) words.push('SchedulingDisabled');
  return words.join(',');
}

const ROLE = 'node-role.kubernetes.io/';

function roles(node: Node): string {
  const found = new Set<string>();
  for (const [key, value] of Object.entries(node.metadata.labels ?? {})) {
    if (key.startsWith(ROLE) && key.length > ROLE.length) found.add(key.slice(ROLE.length));
    else if (key === 'kubernetes.io/role' && value !== '') found.add(value);
  }
  return found.size === 0 ? '<none>' : [...found].sort().join(',');
}

const address = (node: Node, addressType: string): string =>
  orNone((node.status?.addresses ?? []).find(({ type }) => type === addressType)?.address);
const unknown = (text: string | undefined): string => (text === undefined || text === '' ? '<unknown>' : text);

/** Formats the kernel version and the architecture, for example `6.1.0 (amd64)`. */
function kernel(version = '', architecture = ''): string {
  return version === '' || architecture === '' ? unknown(version) : `${version} (${architecture})`;
}

export const nodeColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Status', 'The status of the node'),
    column('Roles', 'The roles of the node'),
    ageColumn,
    column('Version', field('core.v1.NodeSystemInfo', 'kubeletVersion')),
    column('Internal-IP', field('core.v1.NodeStatus', 'addresses'), { wide: true }),
    column('External-IP', field('core.v1.NodeStatus', 'addresses'), { wide: true }),
    column('OS-Image', field('core.v1.NodeSystemInfo', 'osImage'), { wide: true }),
    column('Kernel-Version', field('core.v1.NodeSystemInfo', 'kernelVersion'), { wide: true }),
    column('Container-Runtime', field('core.v1.NodeSystemInfo', 'containerRuntimeVersion'), { wide: true }),
  ],
  cells(object) {
    const node = object as Node;
    const info = node.status?.nodeInfo;
    return [
      nameOf(object),
      nodeStatus(node),
      roles(node),
      age(object),
      info?.kubeletVersion ?? '',
      address(node, 'InternalIP'),
      address(node, 'ExternalIP'),
      unknown(info?.osImage),
      kernel(info?.kernelVersion, info?.architecture),
      unknown(info?.containerRuntimeVersion),
    ];
  },
};

/** Returns the names and the images of a template's containers as two cells. */
export function containerCells(template: PodTemplate | undefined): [string, string] {
  const containers = template?.spec?.containers ?? [];
  return [containers.map(({ name = '' }) => name).join(','), containers.map(({ image = '' }) => image).join(',')];
}

export const podTemplateColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Containers', 'Names of each container in the template.'),
    column('Images', 'Images referenced by each container in the template.'),
    column('Pod Labels', 'The labels for the pod template.'),
  ],
  cells(object) {
    const { template } = object as { template?: PodTemplate };
    return [nameOf(object), ...containerCells(template), formatLabels(template?.metadata?.labels)];
  },
};
