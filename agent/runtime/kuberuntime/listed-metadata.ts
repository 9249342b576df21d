/**
 * Limits the labels and annotations of a pod that its sandbox gets. Users write as many as they like, and runtimes return them
 * with each list of all sandboxes of the node: two pods with 80,000 labels each would make lists that are refused.
 */
import type { Pod } from '../../base/model/pod.ts';

/**
 * The maximum number of labels and annotations together. The lists of 250 pods, with as many terminated sandboxes, then have
 * half of the accepted size.
 */
const MAX_ENTRIES = 128;
/** The maximum number of characters of their keys and values together. */
const MAX_CHARACTERS = 16 * 1024;

type Texts = Readonly<Record<string, string>>;
type Entry = readonly [key: string, value: string];

/** Returns as many labels and annotations as fit, the shortest first: those that plugins of runtimes read are short. */
export function listedMetadata({ metadata }: Pod): { readonly labels: Texts; readonly annotations: Texts } {
  const [labels, annotations] = [metadata.labels ?? {}, metadata.annotations ?? {}].map((texts): readonly Entry[] =>
    Object.entries(texts),
  );
  const listed = [...(labels ?? []), ...(annotations ?? [])];
  const chosen = new Set<Entry>();
  let characters = 0;
  for (const entry of listed.toSorted((left, right) => lengthOf(left) - lengthOf(right))) {
    characters += lengthOf(entry);
    if (chosen.size === MAX_ENTRIES || characters > MAX_CHARACTERS) break;
    chosen.add(entry);
  }
  const chosenOf = (entries: readonly Entry[] = []): Texts =>
    Object.fromEntries(entries.filter((entry) => chosen.has(entry)));
  return { labels: chosenOf(labels), annotations: chosenOf(annotations) };
}

const lengthOf = ([key, value]: Entry): number => key.length + value.length;
