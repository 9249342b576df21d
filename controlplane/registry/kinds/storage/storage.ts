/** Lists the kinds of the group storage.k8s.io. */
import { kindRow } from '../../strategy.ts';
import { capacities, csiNodes, drivers } from './csi.ts';
import { attributesClasses, storageClasses } from './storage-classes.ts';
import { attachments } from './volume-attachments.ts';

const GROUP = 'storage.k8s.io';

export const storageKinds = [
  kindRow(GROUP, 'storageclasses', storageClasses),
  kindRow(GROUP, 'volumeattributesclasses', attributesClasses),
  kindRow(GROUP, 'csidrivers', drivers),
  kindRow(GROUP, 'csinodes', csiNodes),
  kindRow(GROUP, 'csistoragecapacities', capacities),
  kindRow(GROUP, 'volumeattachments', attachments),
];
