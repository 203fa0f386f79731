import java.sql.*;
import java.util.*;

/** Talks to exposed views as Java programs do; prints what it gets, a line a fact: name, then values, with tabs. */
public class Jdbc {
    static final String ORDERS = "dpv.\"Orders\"";

    static void tell(String name, Object... values) {
        StringBuilder line = new StringBuilder(name);
        for (Object value : values) line.append('\t').append(value);
        System.out.println(line);
    }

    static void tellRows(String name, ResultSet rows) throws SQLException {
        int columns = rows.getMetaData().getColumnCount();
        while (rows.next()) {
            Object[] values = new Object[columns];
            for (int i = 0; i < columns; i++) values[i] = rows.getObject(i + 1);
            tell(name, values);
        }
        rows.close();
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData data = connection.getMetaData();
        for (ResultSet r = data.getSchemas(); r.next();) if (r.getString(1).equals("dpv")) tell("schema", r.getString(1));
        for (ResultSet r = data.getTables(null, "dpv", "%", new String[] {"TABLE", "VIEW"}); r.next();)
            tell("table", r.getString("TABLE_NAME"), r.getString("TABLE_TYPE"), r.getString("REMARKS"));
        for (ResultSet r = data.getColumns(null, "dpv", "Orders", "%"); r.next();)
            tell("column", r.getString("COLUMN_NAME"), r.getString("TYPE_NAME"), r.getInt("DATA_TYPE"), r.getInt("COLUMN_SIZE"),
                 r.getString("REMARKS"));
        ResultSet[] none = {data.getPrimaryKeys(null, "dpv", "Orders"), data.getIndexInfo(null, "dpv", "Orders", false, true),
                            data.getImportedKeys(null, "dpv", "Orders"), data.getExportedKeys(null, "dpv", "customer"),
                            data.getBestRowIdentifier(null, "dpv", "Orders", DatabaseMetaData.bestRowSession, true)};
        for (int i = 0; i < none.length; i++) tellRows("key " + i, none[i]);
        for (ResultSet r = data.getTablePrivileges(null, "dpv", "Orders"); r.next();)
            tell("privilege", r.getString("GRANTEE"), r.getString("PRIVILEGE"));
        data.getVersionColumns(null, "dpv", "Orders").close();
        tellRows("type", data.getUDTs(null, "dpv", "%", null));
        data.getFunctions(null, "dp", "%").close();
        data.getFunctionColumns(null, "public", "dp_count", "%").close();
    }

    static void shape(Connection connection) throws SQLException {
        String question = "SELECT o_status AS \"Status\", count(*) AS n, sum(o_amount) AS total, avg(o_amount) AS mean FROM " + ORDERS + " GROUP BY 1";
        try (PreparedStatement prepared = connection.prepareStatement(question)) {
            ResultSetMetaData shape = prepared.getMetaData();
            for (int i = 1; i <= shape.getColumnCount(); i++)
                tell("shape", shape.getColumnLabel(i), shape.getColumnTypeName(i), shape.getColumnClassName(i), shape.isNullable(i),
                     shape.getTableName(i), shape.isAutoIncrement(i));
        }
        try (Statement probe = connection.createStatement()) {
            probe.setMaxRows(1);
            ResultSet rows = probe.executeQuery("SELECT * FROM " + ORDERS + " WHERE 1 = 0");
            tell("probe", rows.getMetaData().getColumnCount(), rows.next());
        }
    }

    static void prepared(Connection connection) throws SQLException {
        String question = "SELECT o_status, count(*) AS n FROM " + ORDERS + " WHERE o_amount < ? AND o_day >= ? GROUP BY 1 ORDER BY 1";
        try (PreparedStatement prepared = connection.prepareStatement(question)) {
            // after the third time the driver prepares on the server and reads in binary
            for (int i = 0; i < 8; i++) {
                prepared.setBigDecimal(1, new java.math.BigDecimal("50"));
                prepared.setDate(2, java.sql.Date.valueOf("2024-01-15"));
                tellRows("prepared", prepared.executeQuery());
            }
            tell("on the server", prepared.unwrap(org.postgresql.PGStatement.class).isUseServerPrepare());
        }
        try (PreparedStatement other = connection.prepareStatement("SELECT count(*) FROM dpv.customer WHERE c_country = ANY (?)")) {
            other.setArray(1, connection.createArrayOf("text", new String[] {"DE", "FR"}));
            tellRows("array", other.executeQuery());
        }
    }

    static void cursors(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        connection.setReadOnly(true);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(10);
            ResultSet rows = statement.executeQuery("SELECT o_day, count(*) FROM " + ORDERS + " GROUP BY 1");
            int number = 0;
            while (rows.next()) number++;
            tell("fetched", number);
        }
        try (Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY)) {
            ResultSet rows = statement.executeQuery("SELECT o_day, count(*) FROM " + ORDERS + " GROUP BY 1");
            rows.last();
            tell("scrolled", rows.getRow());
        }
        connection.commit();
        connection.setReadOnly(false);
        connection.setAutoCommit(true);
    }

    static void refused(Connection connection, String question) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeQuery(question).close();
            tell("answered", question);
        } catch (org.postgresql.util.PSQLException error) {
            tell("refused", error.getSQLState(), error.getServerErrorMessage().getHint(), error.getServerErrorMessage().getPosition());
        }
        try (Statement statement = connection.createStatement()) {
            tellRows("goes on", statement.executeQuery("SELECT 1"));
        }
    }

    static void canceled(Connection connection, String question) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            statement.executeQuery(question).close();
            tell("answered", question);
        } catch (SQLException error) {
            tell("canceled", error.getSQLState());
        }
    }

    public static void main(String[] given) throws Exception {
        try (Connection connection = DriverManager.getConnection(given[0])) {
            metadata(connection);
            shape(connection);
            prepared(connection);
            cursors(connection);
            refused(connection, "SELECT * FROM " + ORDERS);
            refused(connection, "SELECT max(o_note) FROM " + ORDERS);
            canceled(connection, "SELECT count(*) FROM " + ORDERS + " AS a, " + ORDERS + " AS b, " + ORDERS
                     + " AS c WHERE a.o_id + b.o_id > c.o_id + 1");
            refused(connection, "SELECT c_id FROM dpv.customer");
        }
    }
}
