/** Runs the second phase of the start: readers of the stored objects, for the security parts and admission. */
import { ServedDefinitions } from '../registry/custom-resources/served-definitions.ts';
import { type Listers, listersFromCatalog } from '../model/listers.ts';
import type { Setting } from './setting.ts';
import type { StoresPhase } from './stores.ts';

/** What this phase adds for the phases after it. */
export interface ReadersPhase {
  readonly listers: Listers;
  /** The custom resources that are served. They are added when the control plane serves. */
  readonly definitions: ServedDefinitions;
}

/** Starts no informer: each starts with the first reader of its resource. */
export function openReaders({ clock, logger, signal }: Setting, { registry }: StoresPhase): ReadersPhase {
  return {
    listers: listersFromCatalog(registry.catalog, { clock, logger, signal }),
    definitions: new ServedDefinitions(),
  };
}
