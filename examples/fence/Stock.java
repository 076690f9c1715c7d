import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Takes pieces out of the stock that a file counts, and never more than there are.
 *
 * <pre>leasehold run stock -- java Stock.java /var/lib/shop/stock 3</pre>
 *
 * <p>A process that is frozen past its time and goes on after another one has been there changes nothing and exits 76.
 * A program with a database checks in its own transaction instead: the statement is the one of stock.py, and
 * {@code executeUpdate} answers 1 when the token is accepted and 0 when it is stale.
 */
class Stock {
    private static final int STALE = 76;

    public static void main(String[] args) throws IOException, InterruptedException {
        Path file = Path.of(args[0]).toAbsolutePath();
        int pieces = Integer.parseInt(args[1]);
        // Before reading: from here on no older process can write any more.
        fence(null, "check", file);
        int left = Integer.parseInt(Files.readString(file).strip());
        if (left < pieces) {
            System.err.println("only " + left + " left");
            System.exit(1);
        }
        fence((left - pieces) + "\n", "write", file);
        System.out.println((left - pieces) + " left");
    }

    /** Calls `leasehold fence`; ends the program with its exit code when it refuses. */
    private static void fence(String input, String what, Path file) throws IOException, InterruptedException {
        List<String> line = new ArrayList<>(List.of("leasehold", "fence", what, file.toString()));
        line.add(System.getenv("LEASEHOLD_TOKEN"));
        Process call = new ProcessBuilder(line)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        try (var out = call.getOutputStream()) {
            if (input != null) {
                out.write(input.getBytes());
            }
        } catch (IOException closed) {
            // It needs no input to refuse a stale token.
        }
        int code = call.waitFor();
        if (code == STALE) {
            System.err.println("the token is stale");
        }
        if (code != 0) {
            System.exit(code);
        }
    }
}
