/** Computes the number of replicas that each metric of an autoscaler proposes, and the status of the metric. */
import type { HorizontalPodAutoscaler, Pod } from '../../../api/kinds/kinds.ts';
import { parseApiVersion } from '../../../api/meta/object.ts';
import { formatQuantity, newMilliQuantity } from '../../../api/meta/quantity.ts';
import { fromLabelSelector } from '../../../api/meta/selector.ts';
import type { ResourceCatalog } from '../../model/rest.ts';
import type { Metric, MetricStatus } from '../../registry/kinds/autoscaling/autoscaling-conversion.ts';
import { type MetricsClient, milliOf } from './metrics-client.ts';
import {
  byAverage,
  byShare,
  byUtilization,
  byValue,
  MetricsError,
  type CalculationOptions,
  type Proposal,
} from './replica-calculator.ts';

interface ProposalInput {
  readonly autoscaler: HorizontalPodAutoscaler;
  readonly pods: readonly Pod[];
  /** The label selector of the target as text. */
  readonly selector: string;
  readonly specReplicas: number;
  readonly statusReplicas: number;
}

/** The number of replicas that one metric of the autoscaler proposes. */
export interface MetricProposal {
  readonly replicas: number;
  /** The name of the metric in events and conditions. */
  readonly name: string;
  readonly status: MetricStatus;
}

/** A metric that could not be read, with the reason for the condition and the event. */
export class FailedMetric extends Error {
  readonly reason: string;

  constructor(reason: string, message: string) {
    super(message);
    this.reason = reason;
  }
}

const quantityOf = (milli: number): string => formatQuantity(newMilliQuantity(Math.trunc(milli)));
const selectorText = (selector: unknown): string =>
  selector === undefined ? '' : fromLabelSelector(selector as Parameters<typeof fromLabelSelector>[0]).toString();

interface ProposalParts {
  readonly metrics: MetricsClient;
  readonly catalog: Pick<ResourceCatalog, 'resources'>;
  readonly options: CalculationOptions;
}

/**
 * Returns the number of replicas that a metric proposes. Rejects with a `FailedMetric` if the metric cannot be read, or its
 * type is unknown.
 */
export async function proposalOf(metric: Metric, input: ProposalInput, parts: ProposalParts): Promise<MetricProposal> {
  switch (metric.type) {
    case 'Resource':
      return resourceProposal(metric.resource ?? {}, '', input, parts);
    case 'ContainerResource':
      return resourceProposal(metric.containerResource ?? {}, metric.containerResource?.container ?? '', input, parts);
    case 'Pods':
      return podsProposal(metric, input, parts);
    case 'Object':
      return objectProposal(metric, input, parts);
    case 'External':
      return externalProposal(metric, input, parts);
    default:
      throw new FailedMetric('InvalidMetricSourceType', `unknown metric source type "${metric.type ?? ''}"`);
  }
}

async function attempt<T>(reason: string, failure: string, calculate: () => Promise<T> | T): Promise<T> {
  try {
    return await calculate();
  } catch (error) {
    if (!(error instanceof MetricsError)) throw error;
    throw new FailedMetric(reason, `${failure}: ${error.message}`);
  }
}

interface ResourceSource {
  name?: string | undefined;
  target?: { averageUtilization?: number | undefined; averageValue?: string | undefined } | undefined;
}

async function resourceProposal(
  source: ResourceSource,
  container: string,
  input: ProposalInput,
  { metrics, options }: ProposalParts,
): Promise<MetricProposal> {
  const { name: resource = '', target = {} } = source;
  const { averageUtilization, averageValue } = target;
  const { pods, specReplicas: current } = input;
  const namespace = input.autoscaler.metadata.namespace ?? '';
  const kind = container === '' ? 'resource' : 'container resource';
  const reason = container === '' ? 'FailedGetResourceMetric' : 'FailedGetContainerResourceMetric';
  const failure =
    averageValue === undefined ? `failed to get ${resource} utilization` : `failed to get ${resource} usage`;
  const proposal = await attempt(reason, failure, async (): Promise<Proposal> => {
    const measured = await unableTo(`unable to get metrics for resource ${resource}`, () =>
      metrics.resource(namespace, input.selector, resource, container),
    );
    if (averageValue !== undefined)
      return byAverage({ pods, metrics: measured, resource, targetMilli: milliOf(averageValue), current }, options);
    const targetPercent = averageUtilization ?? 0;
    return byUtilization({ pods, metrics: measured, resource, container, targetPercent, current }, options);
  });
  const use = {
    averageValue: quantityOf(proposal.milli),
    ...(averageValue === undefined ? { averageUtilization: proposal.utilization ?? 0 } : {}),
  };
  const share = averageValue === undefined ? ' utilization (percentage of request)' : '';
  const status =
    container === ''
      ? { type: 'Resource', resource: { name: resource, current: use } }
      : { type: 'ContainerResource', containerResource: { name: resource, container, current: use } };
  return { replicas: proposal.replicas, name: `${resource} ${kind}${share}`, status };
}

async function unableTo<T>(failure: string, fetchMetric: () => Promise<T>): Promise<T> {
  try {
    return await fetchMetric();
  } catch (error) {
    if (!(error instanceof MetricsError)) throw error;
    throw new MetricsError(`${failure}: ${error.message}`, { cause: error });
  }
}

async function podsProposal(metric: Metric, input: ProposalInput, parts: ProposalParts): Promise<MetricProposal> {
  const { metric: identifier = {}, target = {} } = metric.pods ?? {};
  const name = identifier.name ?? '';
  const namespace = input.autoscaler.metadata.namespace ?? '';
  const proposal = await attempt('FailedGetPodsMetric', `failed to get pods metric value`, async () =>
    byAverage(
      {
        pods: input.pods,
        metrics: await unableTo(`unable to get metric ${name}`, () =>
          parts.metrics.pods(namespace, input.selector, name, selectorText(identifier.selector)),
        ),
        resource: '',
        targetMilli: milliOf(target.averageValue ?? '0'),
        current: input.specReplicas,
      },
      parts.options,
    ),
  );
  return {
    replicas: proposal.replicas,
    name: `pods metric ${name}`,
    status: { type: 'Pods', pods: { metric: identifier, current: { averageValue: quantityOf(proposal.milli) } } },
  };
}

async function objectProposal(metric: Metric, input: ProposalInput, parts: ProposalParts): Promise<MetricProposal> {
  const { metric: identifier = {}, target = {}, describedObject = {} } = metric.object ?? {};
  const name = identifier.name ?? '';
  const { kind = '', apiVersion = '' } = describedObject;
  const group = parseApiVersion(apiVersion)?.group ?? '';
  const info = parts.catalog.resources().find((one) => one.kind === kind && one.group === group);
  const namespace = info?.namespaced === false ? '' : (input.autoscaler.metadata.namespace ?? '');
  const proposal = await attempt('FailedGetObjectMetric', 'failed to get object metric value', async () => {
    const { milli } = await unableTo(
      `unable to get metric ${name}: ${kind} on ${namespace} ${describedObject.name ?? ''}`,
      () =>
        parts.metrics.object(
          { group, resource: info?.resource ?? kind.toLowerCase(), namespace, name: describedObject.name ?? '' },
          name,
          selectorText(identifier.selector),
        ),
    );
    return fromValue(milli, target, input, parts.options);
  });
  const current = currentOf(target, proposal);
  return {
    replicas: proposal.replicas,
    name: `${kind} metric ${name}`,
    status: { type: 'Object', object: { describedObject, metric: identifier, current } },
  };
}

async function externalProposal(metric: Metric, input: ProposalInput, parts: ProposalParts): Promise<MetricProposal> {
  const { metric: identifier = {}, target = {} } = metric.external ?? {};
  const name = identifier.name ?? '';
  const namespace = input.autoscaler.metadata.namespace ?? '';
  const selector = identifier.selector === undefined ? 'nil' : selectorText(identifier.selector);
  const proposal = await attempt('FailedGetExternalMetric', `failed to get ${name} external metric value`, async () => {
    const { milli } = await unableTo(`unable to get external metric ${namespace}/${name}/${selector}`, () =>
      parts.metrics.external(namespace, name, selectorText(identifier.selector)),
    );
    return fromValue(milli, target, input, parts.options);
  });
  return {
    replicas: proposal.replicas,
    name: `external metric ${name}(${selector})`,
    status: { type: 'External', external: { metric: identifier, current: currentOf(target, proposal) } },
  };
}

interface ValueTarget {
  value?: string | undefined;
  averageValue?: string | undefined;
}

function fromValue(
  valueMilli: number,
  { value, averageValue }: ValueTarget,
  input: ProposalInput,
  options: CalculationOptions,
): Proposal {
  if (averageValue !== undefined) {
    const { statusReplicas } = input;
    return byShare({ valueMilli, targetMilli: milliOf(averageValue), statusReplicas }, options);
  }
  const targetMilli = milliOf(value ?? '0');
  return byValue({ valueMilli, targetMilli, current: input.specReplicas, pods: input.pods }, options);
}

function currentOf({ averageValue }: ValueTarget, { milli }: Proposal): ValueTarget {
  return averageValue === undefined ? { value: quantityOf(milli) } : { averageValue: quantityOf(milli) };
}
