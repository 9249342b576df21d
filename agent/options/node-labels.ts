/**
 * Validates the labels of `--node-labels`. Allowed are labels outside of the `kubernetes.io` and `k8s.io` namespaces,
 * labels under the prefixes that are reserved for nodes, and well-known labels. Otherwise a node could add labels that
 * attract pods that must not run on it.
 */
import { NODE_LABELS, AGENT_LABEL_DOMAINS } from '../../api/meta/well-known-labels.ts';
import { quoteText } from '../../api/meta/quote.ts';

const WELL_KNOWN: ReadonlySet<string> = new Set(NODE_LABELS);

const NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;

function isUnder(namespace: string, parent: string): boolean {
  return namespace === parent || namespace.endsWith(`.${parent}`);
}

/** Returns the reason to reject the labels, or `undefined`. */
export function nodeLabelProblem(labels: Readonly<Record<string, string>>): string | undefined {
  const unknown: string[] = [];
  for (const [key, value] of Object.entries(labels)) {
    const slash = key.indexOf('/');
    const namespace = slash < 0 ? '' : key.slice(0, slash);
    if (!NAME.test(key.slice(slash + 1)) || (slash >= 0 && !SUBDOMAIN.test(namespace)))
      return `${quoteText(key)} is not a valid label name`;
    if (value !== '' && !NAME.test(value)) return `${quoteText(value)} is not a valid label value`;
    const isGuarded = isUnder(namespace, 'kubernetes.io') || isUnder(namespace, 'k8s.io');
    if (isGuarded && !WELL_KNOWN.has(key) && !AGENT_LABEL_DOMAINS.some((prefix) => isUnder(namespace, prefix)))
      unknown.push(key);
  }
  if (unknown.length === 0) return undefined;
  return `unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [${unknown.join(' ')}]; --node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (${AGENT_LABEL_DOMAINS.join(', ')}) or be in the specifically allowed set (${[...WELL_KNOWN].sort().join(', ')})`;
}
