# An agent: what it is handed comes in here, what it says goes out, and that is its answer.
state=$(sed -n 's/^LIFECYCLE: //p' | head -n 1)
case ${HORAE_TASK:+task}$state in
task*)
    echo "$HORAE_AGENT has done task $HORAE_TASK" | tee -a diary.txt
    ;;
write)
    echo "$(date +%H:%M:%S) the beans have grown a little" >> diary.txt
    echo "wrote line $(wc -l < diary.txt)"
    ;;
*)
    echo "read $(wc -l < diary.txt) lines; the last is: $(tail -n 1 diary.txt)"
    ;;
esac
