/**
 * Parses the options of the CPU manager and the topology manager (`--cpu-manager-policy-options`,
 * `--topology-manager-policy-options`). Pure.
 */
import type { TopologyPolicy } from './topologymanager/hints.ts';
import { quoteText } from '../../../api/meta/quote.ts';

type Maturity = 'alpha' | 'beta' | 'ga';

const CPU_OPTIONS = {
  'full-pcpus-only': 'ga',
  'strict-cpu-reservation': 'ga',
  'distribute-cpus-across-numa': 'beta',
  'prefer-align-cpus-by-uncorecache': 'beta',
  'align-by-socket': 'alpha',
  'distribute-cpus-across-cores': 'alpha',
} as const satisfies Record<string, Maturity>;

const TOPOLOGY_OPTIONS = {
  'prefer-closest-numa-nodes': 'ga',
  'max-allowable-numa-nodes': 'ga',
} as const satisfies Record<string, Maturity>;

/** The feature gates that enable alpha and beta options. */
interface OptionGates {
  readonly alpha: boolean;
  readonly beta: boolean;
}

/** The options of the static CPU policy; all are off by default. */
export interface CpuPolicyOptions {
  readonly fullPhysicalCpusOnly: boolean;
  readonly distributeAcrossNuma: boolean;
  readonly alignBySocket: boolean;
  readonly distributeAcrossCores: boolean;
  readonly strictReservation: boolean;
  readonly alignByUncoreCache: boolean;
}

/**
 * The options of the topology manager. It refuses to start on a host with more than `maxNumaNodes` NUMA nodes, because the time
 * to merge hints grows exponentially with their number.
 */
export interface TopologyPolicyOptions {
  readonly preferClosest: boolean;
  readonly maxNumaNodes: number;
}

/** The error of invalid options of a policy. */
export class PolicyOptionError extends Error {
  override readonly name = 'PolicyOptionError';
}

/** The kubelet's default of `max-allowable-numa-nodes`. */
const DEFAULT_MAX_NUMA_NODES = 8;

function checkNames(
  options: Readonly<Record<string, string>>,
  maturities: Readonly<Record<string, Maturity>>,
  gates: OptionGates,
  manager: string,
): void {
  for (const name of Object.keys(options)) {
    const maturity = maturities[name];
    if (maturity === undefined) throw new PolicyOptionError(`unknown ${manager} Policy option: ${quoteText(name)}`);
    const stage = maturity === 'alpha' ? 'Alpha' : 'Beta';
    if (maturity !== 'ga' && !gates[maturity])
      throw new PolicyOptionError(
        `${manager} Policy ${stage}-level Options not enabled, but option ${quoteText(name)} provided`,
      );
  }
}

function isSet(options: Readonly<Record<string, string>>, name: string): boolean {
  const text = options[name];
  if (text === undefined || /^(0|f|F|false|FALSE|False)$/.test(text)) return false;
  if (/^(1|t|T|true|TRUE|True)$/.test(text)) return true;
  throw new PolicyOptionError(
    `bad value for option ${quoteText(name)}: strconv.ParseBool: parsing ${quoteText(text)}: invalid syntax`,
  );
}

/** Parses the value of `--cpu-manager-policy-options`. Throws `PolicyOptionError`. */
export function cpuPolicyOptions(options: Readonly<Record<string, string>>, gates: OptionGates): CpuPolicyOptions {
  checkNames(options, CPU_OPTIONS, gates, 'CPU Manager');
  const parsed = {
    fullPhysicalCpusOnly: isSet(options, 'full-pcpus-only'),
    distributeAcrossNuma: isSet(options, 'distribute-cpus-across-numa'),
    alignBySocket: isSet(options, 'align-by-socket'),
    distributeAcrossCores: isSet(options, 'distribute-cpus-across-cores'),
    strictReservation: isSet(options, 'strict-cpu-reservation'),
    alignByUncoreCache: isSet(options, 'prefer-align-cpus-by-uncorecache'),
  };
  const excluding = [
    ['fullPhysicalCpusOnly', 'full-pcpus-only', 'distributeAcrossCores', 'distribute-cpus-across-cores'],
    ['distributeAcrossNuma', 'distribute-cpus-across-numa', 'distributeAcrossCores', 'distribute-cpus-across-cores'],
    ['alignByUncoreCache', 'prefer-align-cpus-by-uncorecache', 'distributeAcrossCores', 'distribute-cpus-across-cores'],
    ['alignByUncoreCache', 'prefer-align-cpus-by-uncorecache', 'distributeAcrossNuma', 'distribute-cpus-across-numa'],
  ] as const;
  for (const [left, leftName, right, rightName] of excluding)
    if (parsed[left] && parsed[right])
      throw new PolicyOptionError(
        `static policy options ${leftName} and ${rightName} can not be used at the same time`,
      );
  return parsed;
}

/** Throws `PolicyOptionError` if the options do not fit the host's topology or the topology policy. */
export function checkCpuOptionsFit(
  { alignBySocket }: CpuPolicyOptions,
  host: { readonly sockets: number; readonly numaNodes: number; readonly topologyPolicy: TopologyPolicy },
): void {
  if (!alignBySocket) return;
  if (host.topologyPolicy === 'single-numa-node')
    throw new PolicyOptionError(
      'Topology manager single-numa-node policy is incompatible with CPUManager static policy option align-by-socket',
    );
  if (host.sockets > host.numaNodes)
    throw new PolicyOptionError(
      'CPUManager static policy option align-by-socket is not compatible with hardware where number of sockets are more than number of NUMA',
    );
}

/** Parses the value of `--topology-manager-policy-options`. Throws `PolicyOptionError`. */
export function topologyPolicyOptions(
  options: Readonly<Record<string, string>>,
  gates: OptionGates,
): TopologyPolicyOptions {
  checkNames(options, TOPOLOGY_OPTIONS, gates, 'Topology Manager');
  const text = options['max-allowable-numa-nodes'];
  if (text !== undefined && !/^[+-]?\d+$/.test(text))
    throw new PolicyOptionError(
      `unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: parsing ${quoteText(text)}: invalid syntax`,
    );
  const maxNumaNodes = text === undefined ? DEFAULT_MAX_NUMA_NODES : Number(text);
  if (maxNumaNodes < DEFAULT_MAX_NUMA_NODES)
    throw new PolicyOptionError(
      `the minimum value of "max-allowable-numa-nodes" should not be less than ${DEFAULT_MAX_NUMA_NODES}`,
    );
  return { preferClosest: isSet(options, 'prefer-closest-numa-nodes'), maxNumaNodes };
}
