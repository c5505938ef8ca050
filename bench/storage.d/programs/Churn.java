import java.nio.file.*;
import java.util.*;

/** A service on the JVM: a cache of records in a large heap. A step replaces some of them, and makes garbage while it does. */
public class Churn {
  record Entry(long id, String name, byte[] body) {}

  static Entry make(Random random, long id) {
    byte[] body = new byte[200 + random.nextInt(400)];
    for (int i = 0; i < body.length; i++) body[i] = (byte) ("etaoin shrdlu".charAt(random.nextInt(13)));
    return new Entry(id, "record-" + id + "-" + random.nextInt(1000), body);
  }

  public static void main(String[] args) throws Exception {
    Path go = Path.of(args[0]), done = Path.of(args[1]);
    long bytes = Long.parseLong(args[2]) << 20;
    Random random = new Random(1);
    List<Entry> cache = new ArrayList<>();
    for (long used = 0, id = 0; used < bytes * 7 / 10; id++) {
      Entry entry = make(random, id);
      cache.add(entry);
      used += entry.body().length + 120;
    }
    System.gc();
    for (int taken = 0; ; ) {
      Files.writeString(done.resolveSibling("done.tmp"), Integer.toString(taken));
      Files.move(done.resolveSibling("done.tmp"), done, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
      while (!Files.exists(go) || Integer.parseInt("0" + Files.readString(go).trim()) <= taken) Thread.sleep(20);
      taken++;
      for (int i = 0; i < 2000; i++) {
        int at = random.nextInt(cache.size());
        cache.set(at, make(random, at));
      }
    }
  }
}
