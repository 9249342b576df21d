/** Creates the errors of the watch cache about resource versions, in the words of kube-apiserver. */
import { StorageError } from './storage.ts';

/** Returns the message about a revision whose history is compacted up to `compacted`. */
export const tooOldText = (revision: number, compacted: number): string =>
  `too old resource version: ${revision} (${compacted})`;

/** Creates the error of a read or a watch from a compacted revision. */
export const tooOld = (revision: number, compacted: number): StorageError =>
  new StorageError('compacted', tooOldText(revision, compacted));

/** Creates the error of a read of a revision that does not exist yet. */
export const tooLarge = (revision: number, current: number): StorageError =>
  new StorageError('future-revision', `Too large resource version: ${revision}, current: ${current}`);
